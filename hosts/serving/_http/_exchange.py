"""One HTTP request and its answer, between the server and the application. What either says is not known here."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from starlette.types import Message, Receive, Send

from .._client import Client
from ..logs import log
from ._refusals import is_reworded, reworded

_DISCONNECT: Final[Message] = {"type": "http.disconnect"}
_LAST: Final[Message] = {"type": "http.response.body", "body": b"", "more_body": False}
_REFUSED: Final = 400
_EVENT: Final = b"event: "


class Exchange:
    """One request and its answer: tells when the client goes.

    Args:
        receive: Of the server.
        send: Of the server.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self.client = Client()
        self._receive = receive
        self._send = send
        self._started = False
        self._complete = False
        self._held: Message | None = None  # the start of a refusal, whose body is still to be looked at

    async def receive(self) -> Message:
        """Give the application what the server received."""
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._complete:
            self.client.gone.set()
        return message

    async def send(self, message: Message) -> None:
        """Give the server what the application answers."""
        if message["type"] == "http.response.start":
            self._started = True
            if message["status"] >= _REFUSED:
                log.info("a request was refused with HTTP %d", message["status"])
            if is_reworded(message):
                self._held = message
                return
        elif self._held is not None:
            start, self._held = self._held, None
            message = dict(message) | {"body": reworded(start, message.get("body", b""))}
            await self._send(start)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete = True
        await self._send(message)
        if message.get("body", b"").startswith(_EVENT):
            self.client.pace.take()

    async def complete(self) -> None:
        """End an answer that the application began and left."""
        if self._started and not self._complete and self._held is None:
            await self.send(_LAST)


class Endless(Exchange):
    """An exchange that has no end of its own, and can be given one."""

    def __init__(self, receive: Receive, send: Send) -> None:
        super().__init__(receive, send)
        self._left = asyncio.Event()

    def leave(self) -> None:
        """Have the application believe that the client has gone. The client sees the answer end in order."""
        self._left.set()

    async def receive(self) -> Message:
        receiving = asyncio.ensure_future(super().receive())
        leaving = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait({receiving, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else _DISCONNECT
        finally:
            receiving.cancel()
            leaving.cancel()


class Streams:
    """The streams of a server that have no end of their own: those that clients of earlier revisions open with GET."""

    def __init__(self) -> None:
        self.open: set[Exchange] = set()
        self._ended = False

    def opened(self, receive: Receive, send: Send) -> Endless:
        """Note one. Whoever serves it takes it out of `open`."""
        exchange = Endless(receive, send)
        self.open.add(exchange)
        if self._ended:
            exchange.leave()
        return exchange

    def end(self) -> None:
        """End them, and each that is opened from now on."""
        self._ended = True
        for exchange in tuple(self.open):
            cast("Endless", exchange).leave()


__all__ = ["Endless", "Exchange", "Streams"]
