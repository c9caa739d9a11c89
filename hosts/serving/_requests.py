"""The request log: one line a request, of ids, codes and times. Never arguments, tokens, roles or texts (R7)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final, TypedDict, Unpack

from mcp_types.methods import SPEC_CLIENT_METHODS

from .logs import fields_of

_log = logging.getLogger("worldagent.requests")
_UNKNOWN: Final = "?"
_LONGEST: Final = 200  # characters of an id


class RequestIds(TypedDict, total=False):
    """What a request was about."""

    workspace: str | None
    thread: str | None
    turn: str | None


class RequestLog:
    """Writes the lines, at level info.

    Args:
        tools: The tools that there are. What a caller sends for a name may be anything, so others are shown as `?`.
    """

    def __init__(self, tools: Collection[str] = ()) -> None:
        self._tools = frozenset(tools)

    def record(
        self,
        *,
        method: str,
        code: str,
        ms: float,
        tool: str | None = None,
        **ids: Unpack[RequestIds],
    ) -> None:
        """Write the line of one request that has been answered.

        Args:
            method: The method of the protocol.
            code: `ok`, or the code of the error that it was answered with.
            ms: Milliseconds from its arrival to its answer.
            tool: The tool that was called.
            **ids: What it was about, once the caller was found to reach it.
        """
        if not _log.isEnabledFor(logging.INFO):
            return
        named = {name: str(value) for name, value in ids.items() if value is not None}
        _log.info(
            "request",
            extra=fields_of(
                method=method if method in SPEC_CLIENT_METHODS else _UNKNOWN,
                **({} if tool is None else {"tool": tool if tool in self._tools else _UNKNOWN}),
                **{name: value[:_LONGEST] for name, value in named.items()},
                code=code,
                ms=round(ms, 1),
            ),
        )


__all__ = ["RequestLog"]
