"""A service over standard input and output: one client, the process that started this one.

It ends when its input does, or when that process is gone. Needs no token: who can write to our input started us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from mcp.server.stdio import stdio_server

from .._ending import drained, stopped_by_signals
from ..handlers import watching
from ..logs import log
from ..service import Service
from ._answers import Answers, Incoming, Outgoing, Refusals
from ._lines import Lines
from ._parent import parent_watched
from ._wire import Writer, wire

LAST = 5.0
"""Seconds that calls under way are given once the service has been drained."""

FLUSH = 1.0
"""Seconds that the client then has to read the last line."""


async def serve_stdio(
    service: Service, *, drain: float = 10.0, draining: Callable[[], None] | None = None
) -> int | None:
    """Serve until standard input ends, its parent is gone or a signal asks for it.

    The service is drained then, and requests that were read by then are answered. A second signal ends the process at
    once.

    Args:
        service: What is served.
        drain: Seconds that work under way is given.
        draining: Told when the end begins.

    Returns:
        The number of the signal, or None where there was none.
    """
    watching(service.server)
    answers = Answers()
    stopped: list[int] = []

    async def finish() -> None:
        if draining is not None:
            draining()
        await drained(service, drain)
        with suppress(TimeoutError):
            await asyncio.wait_for(answers.given(), LAST)

    with wire() as (incoming, outgoing):
        lines, writer = Lines(incoming, finish), Writer(outgoing)

        def stop(number: int) -> None:
            stopped.append(number)
            lines.end()

        with stopped_by_signals(stop):
            async with parent_watched(lines.end):
                lines.start()
                writer.start()
                await _serve(service, lines, writer, answers)
    return stopped[0] if stopped else None


async def _serve(service: Service, lines: Lines, writer: Writer, answers: Answers) -> None:
    try:
        async with stdio_server(cast("Any", lines), cast("Any", writer)) as (incoming, outgoing):
            start = service.server.create_initialization_options()
            taken = Incoming(incoming, lines, answers, Refusals(outgoing, answers))
            await service.server.run(taken, Outgoing(outgoing, answers), start)
            writer.leave(FLUSH)
    except* (BrokenPipeError, ConnectionResetError):
        log.warning("the client no longer reads")


__all__ = ["serve_stdio"]
