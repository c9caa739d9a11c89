"""The log of a serving process. It omits the messages of libraries, which can quote a role (R7).

A repeated line is written once a second, so that no client can fill the disk. Each request is one line of data.
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
"""Seconds between two equal lines."""

MAX_COUNTED: Final = 1000
"""How many different lines are tracked for repetition at the same time."""

MAX_ID_CHARACTERS: Final = 200

METHODS: Final = SPEC_CLIENT_METHODS | {"tasks/get", "tasks/update", "tasks/cancel"}
"""The methods of requests that are logged by name, with those of the extension `io.modelcontextprotocol/tasks`."""

_OURS: Final = "worldagent"
_FIELDS: Final = "worldagent_fields"  # the attribute of a record that holds its fields, if it is a line of data
_REPEATS: Final = "worldagent_more"  # how often the line was omitted before
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:#-]+")
_UNKNOWN: Final = "?"

log = logging.getLogger("worldagent.serving")
_requests = logging.getLogger("worldagent.requests")


@contextmanager
def quiet_logs(*, level: LogLevel = "warning", form: LogForm = "text") -> Generator[None, None, None]:
    """Log to stderr, without the text of library records. This replaces all log handlers of the process.

    Lines that repeat within a second are counted, and the count is written later. Python warnings are logged like
    records of a library. Library records below the level warning are written at level debug only.

    Args:
        level: The lowest level to write.
        form: `text` for lines that people read, `json` for one JSON object a line.

    Raises:
        InvalidArgument: The level or the form is unknown.
    """
    if level not in ("debug", "info", "warning") or form not in ("text", "json"):
        raise InvalidArgument(
            f"the log must have level debug, info or warning and form text or json, got {level!r} and {form!r}",
            remedy="use one of these",
        )
    root, handler = logging.getLogger(), _Handler()
    handler.setFormatter(_Formatter(form))
    if level == "info":
        handler.addFilter(lambda record: _is_ours(record) or record.levelno >= logging.WARNING)
    before = (root.level, list(root.handlers), warnings.showwarning)
    root.handlers[:] = [handler]
    root.setLevel(getattr(logging, level.upper()))
    warnings.showwarning = _log_warning
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:], warnings.showwarning = before[1], before[2]
        handler.close()


class RequestLog:
    """The request log: one line a request at level info.

    A line has ids, codes and times. It never has an argument, a token, a role or other text.

    Args:
        tools: The tools that exist. Callers can send any text as a name, so other names are logged as `?`.
    """

    def __init__(self, tools: Collection[str] = ()) -> None:
        self._tools = frozenset(tools)

    def record(self, *, method: str, code: str, ms: float, tool: str | None = None, **ids: str | None) -> None:
        """Write the line of an answered request.

        Args:
            method: The method of the protocol.
            code: `ok`, or the code of the error.
            ms: Milliseconds from the arrival of the request to its answer.
            tool: The called tool.
            **ids: Ids such as `thread` that the caller has access to.
        """
        fields: dict[str, Any] = {"method": method if method in METHODS else _UNKNOWN}
        if tool is not None:
            fields["tool"] = tool if tool in self._tools else _UNKNOWN
        fields |= {name: str(value)[:MAX_ID_CHARACTERS] for name, value in ids.items() if value is not None}
        _requests.info("request", extra={_FIELDS: {**fields, "code": code, "ms": round(ms, 1)}})


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # it cannot be subscripted when the program runs
    """Omits a line that equals one of the last second, and writes the count with the next such line or at the end.

    A line with fields is data and is always written.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counted: dict[str, tuple[float, int, logging.LogRecord]] = {}  # time, count, record

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a log must not break what it reports
            if _fields(record) or not self._is_repeated(record):
                super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- the library's name
        """Do nothing: the base class would print the text of the record."""

    def close(self) -> None:
        for same in list(self._counted):
            self._forget(same)
        super().close()

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        same, now = f"{record.levelname}{record.name}{_text_of(record)}", time.monotonic()
        written, more, _ = self._counted.pop(same, (-math.inf, 0, record))
        repeated = now - written < REPEAT_SECONDS
        self._counted[same] = (written, more + 1, record) if repeated else (now, 0, record)
        if not repeated:
            setattr(record, _REPEATS, more)
        if len(self._counted) > MAX_COUNTED:
            self._forget(next(iter(self._counted)))
        return repeated

    def _forget(self, same: str) -> None:
        _, more, record = self._counted.pop(same)
        if more:
            setattr(record, _REPEATS, more)
            super().emit(record)


class _Formatter(logging.Formatter):
    """Formats our own records in full, and of other records only the logger, the level and the type of the error."""

    def __init__(self, form: LogForm) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        fields, more = _fields(record), getattr(record, _REPEATS, 0)
        if self._form == "text":
            words = "".join(f" {name}={_word(value)}" for name, value in fields.items())
            count = f" (and {more} times more)" if more else ""
            return f"{record.levelname.lower()}: {_text_of(record)}{words}{count}"
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


def _log_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    kind = type(message) if isinstance(message, Warning) else category
    logging.getLogger("py.warnings").warning("", exc_info=(kind, Warning(), None))


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == _OURS


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return getattr(record, _FIELDS, {}) if _is_ours(record) else {}


def _text_of(record: logging.LogRecord) -> str:
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
