"""Wake-ups and events over NATS JetStream: a stream keeps them, and each goes to one gateway of many.

Needs the extra `nats`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, Header, RetentionPolicy, StreamConfig
from nats.js.errors import NoStreamResponseError, NotFoundError

from ...core import digest
from ...storage import Transaction
from .wakeups import RETRY_SECONDS, Watch, cancelled

STREAM: Final = "worldagent"
SUBJECT: Final = "worldagent.members"
EVENT_STREAM: Final = "worldagent-events"
EVENT_SUBJECT: Final = "worldagent.events"
"""Stands before the name of a workspace in the subject to which others publish its events."""

ACK_SECONDS: Final = 30.0
"""After this time without an acknowledgement another gateway gets the wake-up or the event."""

_AGE_SECONDS: Final = 86_400.0
_FETCH_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 5.0
_PUBLISH_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0
_MAX_PUBLISHING: Final = 1000

_LOG: Final = logging.getLogger("worldagent.gateway")


class NatsWakeups:
    """Wake-ups over NATS. What it cannot publish or receive is found by polling, with one warning for each outage.

    Args:
        url: `nats://USER:PASSWORD@HOST:PORT`, or several with commas in between.
    """

    def __init__(self, url: str) -> None:
        self._servers = url.split(",")
        self._client: Client | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._publishing: set[asyncio.Task[None]] = set()
        self._watches: set[Watch] = set()
        self._failed = False

    def within(self, transaction: Transaction, workspace: str) -> None:
        """See `Wakeups.within`: the broker takes no part in the transaction."""

    def publish(self, workspace: str, message_ids: Sequence[str]) -> None:
        """See `Wakeups.publish`."""
        self._connect()
        for message_id in message_ids:
            if len(self._publishing) < _MAX_PUBLISHING:
                task = asyncio.ensure_future(self._publish(_token(workspace), message_id))
                self._publishing.add(task)
                task.add_done_callback(self._publishing.discard)

    @asynccontextmanager
    async def listen(self, workspace: str, *, every: bool = False) -> AsyncGenerator[Watch]:
        """See `Wakeups.listen`."""
        self._connect()
        watch, token = Watch(), _token(workspace)
        self._watches.add(watch)
        receive = partial(self._hear if every else self._take, token, watch)
        receiving = asyncio.ensure_future(self._again(receive, watch.ring))
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            await cancelled(receiving)

    async def receive_events(self, workspace: str, post: Callable[[bytes], Awaitable[bool]]) -> None:
        """See `Wakeups.receive_events`. The stream keeps them while no gateway runs."""
        self._connect()

        async def handle(message: Msg) -> None:
            await (message.ack() if await post(message.data) else message.nak(delay=RETRY_SECONDS))

        subject, name = event_subject(workspace), f"events-{_token(workspace)}"
        await self._again(lambda: self._each(_EVENTS, subject, name, handle))

    async def aclose(self) -> None:
        """See `Wakeups.aclose`. What is published at the moment gets two seconds."""
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=_CLOSE_SECONDS)
        client, connecting, self._client, self._connecting = self._client, self._connecting, None, None
        await cancelled(*self._publishing, *([] if connecting is None else [connecting]))
        if client is not None:
            await client.close()
        self._connected.clear()

    # --- the connection -----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connecting is None:
            self._client = Client()
            self._connecting = asyncio.ensure_future(self._opened(self._client))

    async def _opened(self, client: Client) -> None:
        """Connect, however long it takes. After that the client connects again by itself."""
        await client.connect(
            self._servers,
            name="worldagent",
            error_cb=self._warn,
            disconnected_cb=self._lost,
            reconnected_cb=self._found,
            connect_timeout=5,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
        )
        self._failed = False
        self._connected.set()

    async def _found(self) -> None:
        self._failed = False
        self._connected.set()
        for watch in self._watches:  # others can have sent meanwhile
            watch.ring()

    async def _lost(self) -> None:
        self._connected.clear()
        await self._warn(ConnectionError())

    async def _warn(self, error: Exception) -> None:
        if not self._failed and self._connecting is not None:
            _LOG.warning("the NATS server cannot be used, and gateways only poll: %s", type(error).__name__)
        self._failed = True

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _publish(self, token: str, message_id: str) -> None:
        # An id of this package is made once; the server drops a second wake-up with it.
        headers = {Header.MSG_ID.value: f"{token}.{message_id}"}
        try:
            async with asyncio.timeout(_PUBLISH_SECONDS):
                stream = await self._stream()
                try:
                    await stream.publish(f"{SUBJECT}.{token}", headers=headers)
                except NoStreamResponseError:
                    await _make_stream(stream, _WAKEUPS)
                    await stream.publish(f"{SUBJECT}.{token}", headers=headers)
        except (Error, TimeoutError) as error:
            await self._warn(error)
        else:
            self._failed = False

    async def _stream(self) -> JetStreamContext:
        await self._connected.wait()
        assert self._client is not None
        return self._client.jetstream(timeout=_REQUEST_SECONDS)

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def _again(self, receive: Callable[[], Awaitable[None]], failed: Callable[[], object] = lambda: None) -> None:
        """Receive until this is cancelled, again after each failure."""
        while True:
            try:
                await receive()
            except (Error, TimeoutError) as error:  # such as a stream that was removed
                await self._warn(error)
            failed()
            await asyncio.sleep(RETRY_SECONDS)

    async def _take(self, token: str, watch: Watch) -> None:
        """Take one wake-up after the other from the consumer that all gateways of the workspace share."""

        async def wake(message: Msg) -> None:
            await watch.ring().wait()
            await message.ack()

        await self._each(_WAKEUPS, f"{SUBJECT}.{token}", f"gateways-{token}", wake, begun=watch.ring)

    async def _each(
        self,
        config: StreamConfig,
        subject: str,
        name: str,
        handle: Callable[[Msg], Awaitable[None]],
        *,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        """Handle one message after the other of a consumer. Once it is there, `begun` is called."""
        stream = await self._stream()
        await _make_stream(stream, config)
        taking = await stream.pull_subscribe(subject, name, config.name, config=ConsumerConfig(ack_wait=ACK_SECONDS))
        self._failed = False
        begun()  # for what was sent before
        try:
            while True:
                await self._connected.wait()
                with contextlib.suppress(TimeoutError):
                    [message] = await taking.fetch(1, timeout=_FETCH_SECONDS)
                    await handle(message)
        finally:
            with contextlib.suppress(Error):
                await taking.unsubscribe()

    async def _hear(self, token: str, watch: Watch) -> None:
        """Hear of every wake-up, without taking it from the gateways."""
        await self._connected.wait()
        assert self._client is not None
        hearing = await self._client.subscribe(f"{SUBJECT}.{token}")
        try:
            await self._client.flush()
            watch.ring()  # for what was sent before
            async for _ in hearing.messages:
                watch.ring()
        finally:
            with contextlib.suppress(Error):
                await hearing.unsubscribe()


_WAKEUPS: Final = StreamConfig(
    name=STREAM,
    subjects=[f"{SUBJECT}.*"],
    retention=RetentionPolicy.WORK_QUEUE,
    max_age=_AGE_SECONDS,
    duplicate_window=120,
)
_EVENTS: Final = StreamConfig(
    name=EVENT_STREAM, subjects=[f"{EVENT_SUBJECT}.*"], retention=RetentionPolicy.WORK_QUEUE, duplicate_window=120
)


async def _make_stream(stream: JetStreamContext, config: StreamConfig) -> None:
    """Make a stream, unless it exists. An operator can have made it with more replicas, or another age."""
    assert config.name is not None
    try:
        await stream.stream_info(config.name)
    except NotFoundError:
        await stream.add_stream(config)


def event_subject(workspace: str) -> str:
    """The subject to which others publish the events of a workspace as JSON.

    It ends with the id of the workspace, or with a digest of it if it has other characters than letters, digits, `-`
    and `_`.

    Args:
        workspace: The id of the workspace.
    """
    return f"{EVENT_SUBJECT}.{workspace if re.fullmatch('[A-Za-z0-9_-]+', workspace) else _token(workspace)}"


def _token(workspace: str) -> str:
    """The workspace as a part of a subject, where most characters of an id cannot be."""
    return digest(workspace)
