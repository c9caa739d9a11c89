"""What a serving process may write to its log: never a message that a library made of what it was sent (R7).

Nor what would fill a disk: of the same line again and again, one a second.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeAlias

from ...core.errors import InvalidArgument

LogLevel: TypeAlias = Literal["debug", "info", "warning"]
LogForm: TypeAlias = Literal["text", "json"]

OURS: Final = "worldagent"
FIELDS: Final = "worldagent_fields"
"""The attribute of a record that holds its fields, for lines that are data."""

_PAUSE: Final = 1.0  # seconds between two lines that are the same
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:#-]+")
_KEPT: Final = 1000  # lines whose count is kept

log = logging.getLogger("worldagent.serving")


class _Text(logging.Formatter):
    """Our own records as they are; of all others the place, the level and the type of the error."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        words = "".join(f" {name}={_word(value)}" for name, value in fields.items())
        return f"{record.levelname.lower()}: {_said(record)}{words}"


class _Json(logging.Formatter):
    """The same, as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if _ours(record):
            line["message"] = record.getMessage()
        elif (kind := _kind(record)) is not None:
            line["error"] = kind
        return json.dumps({**line, **_fields(record)}, ensure_ascii=True, default=str)


class _Calm(logging.StreamHandler):  # type: ignore[type-arg]  # it cannot be subscripted when the program runs
    """Counts the lines that are the same as one in the second before, and tells the count with the next or at the end.

    A line with fields is data, and is written as often as it comes.
    """

    def __init__(self, form: LogForm) -> None:
        super().__init__()
        self.setFormatter(_Text() if form == "text" else _Json())
        self._told: dict[str, tuple[float, int, str]] = {}
        self._form = form

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if _fields(record):
                self._say(self.format(record), 0)
            else:
                self._count(record)
        except Exception:  # not by name: a log must not fail what it tells of, such as with a stream nobody reads
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- the library's name
        """Do nothing: the library would print the record with its text."""

    def flush_counts(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads the stream any more, or it is closed
            for _, held, line in self._told.values():
                if held:
                    self._say(line, held)

    def _count(self, record: logging.LogRecord) -> None:
        line, now = self.format(record), time.monotonic()
        same = f"{record.levelname}{record.name}{_said(record)}"  # without the time, which is never the same
        last, held, _ = self._told.get(same, (-math.inf, 0, ""))
        if now - last < _PAUSE:
            self._told[same] = (last, held + 1, line)
            return
        self._told[same] = (now, 0, line)
        self._say(line, held)
        if len(self._told) > _KEPT:
            self._forget(now)

    def _forget(self, now: float) -> None:
        for same, (last, held, line) in list(self._told.items()):
            if now - last >= _PAUSE or len(self._told) > _KEPT:
                del self._told[same]
                if held:
                    self._say(line, held)

    def _say(self, line: str, held: int) -> None:
        if held and self._form == "json":
            line = json.dumps(json.loads(line) | {"more": held}, ensure_ascii=True)
        elif held:
            line = f"{line} (and {held} times more)"
        self.stream.write(line + self.terminator)
        self.flush()


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
    root, handler = logging.getLogger(), _Calm(form)
    if level == "info":
        handler.addFilter(lambda record: _ours(record) or record.levelno >= logging.WARNING)
    before = (root.level, list(root.handlers), warnings.showwarning)
    root.handlers[:] = [handler]
    root.setLevel(getattr(logging, level.upper()))
    warnings.showwarning = _warned
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers[:], warnings.showwarning = before[1], before[2]
        handler.flush_counts()


def fields_of(**fields: Any) -> dict[str, Any]:
    """What `extra=` takes for a record that is data."""
    return {FIELDS: fields}


def _warned(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    kind = type(message) if isinstance(message, Warning) else category
    logging.getLogger("py.warnings").warning("", exc_info=(kind, Warning(), None))


def _ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == OURS


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return getattr(record, FIELDS, {}) if _ours(record) else {}


def _said(record: logging.LogRecord) -> str:
    if _ours(record):
        return record.getMessage()
    kind = _kind(record)
    return record.name if kind is None else f"{record.name} ({kind})"


def _kind(record: logging.LogRecord) -> str | None:
    given = record.exc_info
    return given[0].__name__ if given and given[0] else None


def _word(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


__all__ = ["LogForm", "LogLevel", "fields_of", "log", "quiet_logs"]
