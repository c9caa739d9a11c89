"""What a serving process writes to its log: never a message that a library made of what it was sent (R7).

Nor what would fill a disk: of the same line again and again, one a second. Requests are lines of data.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
import warnings
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeAlias

from mcp_types.methods import SPEC_CLIENT_METHODS

from ...core.errors import InvalidArgument

LogLevel: TypeAlias = Literal["debug", "info", "warning"]
LogForm: TypeAlias = Literal["text", "json"]

REPEAT_SECONDS: Final = 1.0
"""Between two lines that are the same."""

MAX_COUNTED: Final = 1000
"""Lines whose repetitions are counted at a time."""

MAX_ID_CHARACTERS: Final = 200

_OURS: Final = "worldagent"
_FIELDS: Final = "worldagent_fields"  # the attribute of a record that holds its fields, where it is data
_MORE: Final = "worldagent_more"  # how often it came meanwhile
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:#-]+")
_UNKNOWN: Final = "?"

log = logging.getLogger("worldagent.serving")
_requests = logging.getLogger("worldagent.requests")


@contextmanager
def quiet_logs(*, level: LogLevel = "warning", form: LogForm = "text") -> Generator[None, None, None]:
    """Send what this process logs to stderr, without the text of libraries. For a process of one's own.

    A line that comes again within a second is counted, and the count is told later. Warnings of Python are logged as
    those of a library are. What libraries do in order is there at debug only.

    Args:
        level: The least that is written.
        form: Lines for people, or a JSON object a line.

    Raises:
        InvalidArgument: There is no such level or form.
    """
    if level not in ("debug", "info", "warning") or form not in ("text", "json"):
        raise InvalidArgument(f"there is no log of level {level!r} as {form!r}", remedy="use debug, info or warning")
    root, handler = logging.getLogger(), _Handler()
    handler.setFormatter(_Formatter(form))
    if level == "info":
        handler.addFilter(lambda record: _is_ours(record) or record.levelno >= logging.WARNING)
    before = (root.level, list(root.handlers), warnings.showwarning)
    root.handlers[:] = [handler]
    root.setLevel(getattr(logging, level.upper()))
    warnings.showwarning = _warned
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:], warnings.showwarning = before[1], before[2]
        handler.close()


class RequestLog:
    """The request log: one line a request at level info, of ids, codes and times; no argument, token, role or text.

    Args:
        tools: The tools that there are. What a caller sends for a name may be anything, so others are shown as `?`.
    """

    def __init__(self, tools: Collection[str] = ()) -> None:
        self._tools = frozenset(tools)

    def record(self, *, method: str, code: str, ms: float, tool: str | None = None, **ids: str | None) -> None:
        """Write the line of one request that has been answered.

        Args:
            method: The method of the protocol.
            code: `ok`, or the code of the error that it was answered with.
            ms: Milliseconds from its arrival to its answer.
            tool: The tool that was called.
            **ids: What it was about, such as `thread`, once the caller was found to reach it.
        """
        fields: dict[str, Any] = {"method": method if method in SPEC_CLIENT_METHODS else _UNKNOWN}
        if tool is not None:
            fields["tool"] = tool if tool in self._tools else _UNKNOWN
        fields |= {name: str(value)[:MAX_ID_CHARACTERS] for name, value in ids.items() if value is not None}
        _requests.info("request", extra={_FIELDS: {**fields, "code": code, "ms": round(ms, 1)}})


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # it cannot be subscripted when the program runs
    """Writes a line that is the same as one in the second before not again, but its count with the next or at the end.

    A line with fields is data, and is written as often as it comes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counted: dict[str, tuple[float, int, logging.LogRecord]] = {}  # when each was written, and how often not

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # not by name: a log must not fail what it tells of
            if _fields(record) or not self._is_repeated(record):
                super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- the library's name
        """Do nothing: the library would print the record with its text."""

    def close(self) -> None:
        for same in list(self._counted):
            self._forget(same)
        super().close()

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        same, now = f"{record.levelname}{record.name}{_said(record)}", time.monotonic()
        written, more, _ = self._counted.pop(same, (-math.inf, 0, record))
        repeated = now - written < REPEAT_SECONDS
        self._counted[same] = (written, more + 1, record) if repeated else (now, 0, record)
        if not repeated:
            setattr(record, _MORE, more)
        if len(self._counted) > MAX_COUNTED:
            self._forget(next(iter(self._counted)))
        return repeated

    def _forget(self, same: str) -> None:
        _, more, record = self._counted.pop(same)
        if more:
            setattr(record, _MORE, more)
            super().emit(record)


class _Formatter(logging.Formatter):
    """Our own records as they are; of all others the place, the level and the type of the error."""

    def __init__(self, form: LogForm) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        fields, more = _fields(record), getattr(record, _MORE, 0)
        if self._form == "text":
            words = "".join(f" {name}={_word(value)}" for name, value in fields.items())
            count = f" (and {more} times more)" if more else ""
            return f"{record.levelname.lower()}: {_said(record)}{words}{count}"
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if _is_ours(record):
            line["message"] = record.getMessage()
        elif (kind := _kind(record)) is not None:
            line["error"] = kind
        return json.dumps({**line, **fields, **({"more": more} if more else {})}, ensure_ascii=True, default=str)


def _warned(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    kind = type(message) if isinstance(message, Warning) else category
    logging.getLogger("py.warnings").warning("", exc_info=(kind, Warning(), None))


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == _OURS


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return getattr(record, _FIELDS, {}) if _is_ours(record) else {}


def _said(record: logging.LogRecord) -> str:
    if _is_ours(record):
        return record.getMessage()
    kind = _kind(record)
    return record.name if kind is None else f"{record.name} ({kind})"


def _kind(record: logging.LogRecord) -> str | None:
    given = record.exc_info
    return given[0].__name__ if given and given[0] else None


def _word(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


__all__ = ["LogForm", "LogLevel", "RequestLog", "log", "quiet_logs"]
