"""A role host over standard input and output: one client, the process that started this one.

It ends when its input does, so with its parent. Needs no token: who can write to our input started us.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from typing import Any, cast

from mcp.server.stdio import stdio_server

from .._server import RoleHost
from ._answers import Answers, Incoming, Outgoing
from ._lines import Lines
from ._signals import stopped_by_signals

DRAIN = 5.0
"""Seconds that calls under way are given when the input ends or a signal asks for the end."""

_log = logging.getLogger("worldagent.role_host")


async def serve_stdio(host: RoleHost) -> int | None:
    """Serve until standard input ends or a signal asks for it. Requests that were read by then are answered.

    Args:
        host: The host.

    Returns:
        The number of the signal, or None at the end of input.
    """
    answers = Answers()
    stopped: list[int] = []

    async def finish() -> None:
        host.end_streams()
        with suppress(TimeoutError):
            await asyncio.wait_for(answers.given(), DRAIN)

    lines = Lines(sys.stdin.fileno(), finish)

    def stop(number: int) -> None:
        stopped.append(number)
        lines.end()

    with stopped_by_signals(stop):
        lines.start()
        try:
            async with stdio_server(stdin=cast("Any", lines)) as (incoming, outgoing):
                start = host.server.create_initialization_options()
                await host.server.run(Incoming(incoming, answers), Outgoing(outgoing, answers), start)
        except* (BrokenPipeError, ConnectionResetError):
            _log.warning("the client no longer reads")
    return stopped[0] if stopped else None


__all__ = ["serve_stdio"]
