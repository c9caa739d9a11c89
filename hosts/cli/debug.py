"""`worldagent --debug`: where an error comes from, without any text that could hold a prompt or a role (R7).

Messages of services and libraries repeat what they were sent, and lines of source code can hold a role. So only types,
numbers, identifiers and places in the code are printed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...core.errors import WorldAgentError

DEBUG: Final[ContextVar[bool]] = ContextVar("worldagent_debug", default=False)
"""Whether the command was started with `--debug`."""

_MAX_CAUSES: Final = 10


def print_error(error: WorldAgentError) -> None:
    """Print where the error of a command comes from, if `--debug` is set."""
    if DEBUG.get():
        _print([f"{_type(error)} ({error.code})", *_answer(error), *_turn(error), *_frames(error)])


def print_original(error: BaseException) -> None:
    """Print the original exception of a model call, which the turn's error replaces; see `WorldAgent(on_error=...)`."""
    lines = ["a model call failed; messages are omitted, because they can repeat the prompt"]
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            break
        lines += [f"{_type(cause)}{_numbers(cause)}", *_frames(cause)]
        cause = cause.__cause__ or cause.__context__
    _print(lines)


def _answer(error: WorldAgentError) -> Iterator[str]:
    for name, attribute in (("status", "status"), ("code", "service_code"), ("request id", "request_id")):
        value = getattr(error, attribute, None)
        if value is not None:
            yield f"  {name} of the service's answer: {value}"


def _turn(error: WorldAgentError) -> Iterator[str]:
    if error.turn_id:
        yield f"  turn: {error.turn_id}"


def _numbers(error: BaseException) -> str:
    status = getattr(error, "status", None)
    return f" (HTTP {status})" if isinstance(status, int) else ""


def _frames(error: BaseException) -> Iterator[str]:
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"


def _type(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _print(lines: list[str]) -> None:
    print("\n".join(f"debug: {line}" for line in lines), file=sys.stderr)
