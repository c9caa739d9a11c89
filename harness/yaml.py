"""Reads one YAML text as plain data. Refuses tags, anchors, aliases, duplicate keys and texts that are too large."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from io import StringIO
from typing import Any, Final, Generic, TypeGuard, TypeVar, cast

from ..core.errors import FunctionInvalid, MissingExtra, PolicyInvalid, WorldAgentError

LONGEST: Final = 1 << 20
"""Bytes of a file."""

MAX_DEPTH: Final = 50
_DIGITS: Final = 300  # of a number

_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9_]*|[-+]?0[xob][0-9a-fA-F_]+")
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)|(\d{4})-(\d\d?)-(\d\d?)(?:[Tt]|[ \t]+)(\d\d?):(\d\d):(\d\d)"
    r"(?:\.\d*)?(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?",
    re.ASCII,
)
_ENTRY: Final = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_][\w.-]*: +)(?P<text>(?:\[.*\]|\{.*\}|[^\s#'\"[{]).*?)\s*")
"""A key and a text on its line, which begins neither with quotes nor with a list or mapping that does not end there."""

_NO_CHARACTER: Final = re.compile(r"\\U(?!0010|000[0-9A-Fa-f])[0-9A-Fa-f]{8}")

# Exceptions that the library raises, besides its own errors, for texts that are not YAML.
_RAW: Final = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)


E = TypeVar("E", bound=WorldAgentError)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument(Generic[E]):
    """The content of a file.

    Attributes:
        name: The name of the file, for errors.
        error: The class of errors about it.
        data: Mappings, lists, texts, numbers, booleans and None.
        lines: The line of each value, counted from 1, by its path.
    """

    name: str
    error: type[E]
    data: Any
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict, repr=False)

    def where(self, *path: str | int) -> str:
        """Return the file and the line of a value, or of the closest value above it that has a line."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return f"{self.name}:{self.lines[path[:end]]}"
        return self.name

    def invalid(self, problem: str, remedy: str, *path: str | int) -> E:
        """Return the error about a value, with its file and line."""
        return self.error(f"{self.where(*path)}: {problem}", remedy=remedy)

    def check_keys(self, value: Iterable[str], known: Collection[str], what: str, *path: str | int) -> None:
        """Refuse a mapping with a key that is not known.

        Args:
            value: The mapping.
            known: The known keys.
            what: What the mapping is, for the error.
            path: Its path.
        """
        for key in value:
            if key not in known:
                remedy = f"{near(key, known)}the keys are: {', '.join(known)}"
                raise self.invalid(f"{what} has no key {key!r}", remedy, *path, key)

    def made(self, make: Callable[[], T], *path: str | int) -> T:
        """Make an object of a value; an error of a declaration gets the file and the line of the value."""
        try:
            return make()
        except (FunctionInvalid, PolicyInvalid) as error:
            problem, remedy = error.problem, error.remedy
        raise self.invalid(problem, remedy, *path)


def near(name: object, known: Iterable[str]) -> str:
    """The begin of a remedy, "did you mean ...", if a known name is similar; otherwise an empty text."""
    wanted, names = str(name), list(known)
    # A name that is a prefix of the other is closer than one with similar letters: explore for explore_context.
    shared = [each for each in names if wanted.startswith(each) or each.startswith(wanted)]
    close = sorted(shared, key=lambda each: abs(len(each) - len(wanted))) or difflib.get_close_matches(wanted, names, 1)
    return f"did you mean {close[0]!r}? " if close else ""


def read_yaml(
    data: bytes, *, name: str, error: type[E], first_line: int = 1, texts: bool = False, colons: bool = False
) -> YamlDocument[E]:
    """Read one YAML document.

    Args:
        data: The file's content, or the part of it that is YAML.
        name: The name of the file.
        error: The class of the error to raise.
        first_line: The line of the file where `data` begins.
        texts: Whether every value is the text that the file has, so that `1.10` is not a number.
        colons: Whether a text that YAML refuses, such as `Use it when: a person asks`, is read as if it were quoted.
            Other programs read it so.

    Raises:
        MissingExtra: The extra `yaml` is not installed.
        WorldAgentError: The file cannot be read; the text names the file and the line.
    """
    if len(data) > LONGEST:
        raise error(f"{name!r} has {len(data)} bytes", remedy=f"keep it to {LONGEST} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + first_line
    else:
        if not colons:
            return _read(text, name, error, first_line, texts)
        try:
            return _read(text, name, error, first_line, texts)
        except error as failure:
            refused, quoted = failure, _with_quotes(text)
        if quoted != text:
            with suppress(error):
                return _read(quoted, name, error, first_line, texts)
        raise refused
    raise error(f"{name}:{line} is not UTF-8", remedy="save the file as UTF-8")


def _with_quotes(text: str) -> str:
    """Put quotes around each text behind a key that YAML refuses. Lines stay where they are."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        entry = _ENTRY.fullmatch(lines[at])
        at += 1
        if entry is None:
            continue
        end = at
        while end < len(lines) and lines[end].startswith(entry["indent"] + " "):
            end += 1
        if not _is_yaml("\n".join(lines[at - 1 : end])):
            first, *rest = (each.strip().replace("'", "''") for each in (entry["text"], *lines[at:end]))
            lines[at - 1 : end] = [
                f"{entry['indent']}{entry['key']}'{first}",
                *(f"{entry['indent']} {x}" for x in rest),
            ]
            lines[end - 1] += "'"
        at = end
    return "\n".join(lines)


def _is_yaml(text: str) -> bool:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        YAML(typ="safe", pure=True).compose(text)
    except (YAMLError, *_RAW):
        return False
    return True


def _read(text: str, name: str, error: type[E], first_line: int, texts: bool) -> YamlDocument[E]:
    if not _is_installed():
        raise MissingExtra(
            f"{name!r} is YAML, and the extra 'yaml' is not installed", remedy="pip install 'worldagent[yaml]'"
        )
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLWarning
    from ruamel.yaml.reader import ReaderError

    problem, line, reached = "", 0, [0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", YAMLWarning)
            reader = YAML(typ="rt", pure=True)
            problem, line = _unwanted(reader.parse(text), reached)
            if not problem:
                lines: dict[tuple[str | int, ...], int] = {}
                data = _plain(YAML(typ="rt", pure=True).load(text), (), lines, first_line)
                if texts:
                    data = _texts(YAML(typ="safe", pure=True).compose(text))
                return YamlDocument(name=name, error=error, data=data, lines=lines)
    except MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        problem_text = (failure.problem or "not YAML").partition(" with value ")[0]  # an error never shows values
        problem, line = problem_text.splitlines()[0], mark.line if mark is not None else 0
    except ReaderError as failure:
        problem, line = str(failure.reason), text.count("\n", 0, failure.position)
    except YAMLError as failure:
        problem = type(failure).__name__
    except _RAW:
        problem, line = _unreadable(text, reached[0])
    remedy = "put the text behind the key in quotes" if problem.startswith("mapping values") else "write plain YAML"
    raise error(f"{name}:{line + first_line} cannot be read: {problem}", remedy=remedy)


def written_yaml(data: Mapping[str, Any]) -> str:
    """Write a mapping as YAML that `read_yaml` reads. Texts of several lines are blocks."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    blocks = {key: LiteralScalarString(f"{each.strip()}\n") if _has_lines(each) else each for key, each in data.items()}
    writer, stream = YAML(typ="rt", pure=True), StringIO()
    writer.width = 1 << 20  # it breaks no line
    writer.dump(blocks, stream)
    return stream.getvalue()


def _has_lines(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and "\n" in value.strip()


def _is_installed() -> bool:
    try:
        return find_spec("ruamel.yaml") is not None
    except ModuleNotFoundError:  # not even the namespace package `ruamel` is installed
        return False


def _unreadable(text: str, reached: int) -> tuple[str, int]:
    """Return a problem that the library does not describe, and its line, at or after the line that was reached."""
    lines = text.splitlines()
    for line in range(reached, len(lines)):
        if _NO_CHARACTER.search(lines[line]):
            return "there is no such character", line
    return "it is not YAML", reached


def _unwanted(events: Any, reached: list[int]) -> tuple[str, int]:
    """Return the first thing that our files must not contain, and its line; `reached` gets the line of each event."""
    depth = documents = 0
    for event in events:
        kind = type(event).__name__
        line = reached[0] = event.start_mark.line if event.start_mark is not None else 0
        if kind == "AliasEvent" or getattr(event, "anchor", None):
            return "anchors and aliases are not allowed", line
        tag = getattr(event, "ctag", None) or getattr(event, "tag", None)
        if kind == "ScalarEvent" and (problem := _unwanted_scalar(event.value, plain=not event.style)):
            return problem, line
        if tag is not None and not kind.endswith("EndEvent") and str(tag) not in ("None", ""):
            return "tags are not allowed", line
        if kind.startswith(("Mapping", "Sequence")):
            depth += 1 if kind.endswith("StartEvent") else -1
        documents += kind == "DocumentStartEvent"
        if depth > MAX_DEPTH:
            return "it is nested too deep", line
        if documents > 1:
            return "it has more than one document", line
    return "", 0


def _unwanted_scalar(value: str, *, plain: bool) -> str:
    if any("\ud800" <= mark <= "\udfff" for mark in value):
        return "it contains half a surrogate pair"
    if plain and value == "<<":
        return "'<<' without quotes is not allowed"
    if plain and len(value) > _DIGITS and _NUMBER.fullmatch(value):
        return f"a number has more than {_DIGITS} digits"
    if plain and (date := _DATE.fullmatch(value)):
        try:
            datetime(*(int(part) for part in date.groups() if part is not None))  # type: ignore[arg-type]  # 3 or 6
        except ValueError:
            return "there is no such date"
    return ""


def _plain(value: Any, path: tuple[str | int, ...], lines: dict[tuple[str | int, ...], int], first: int) -> Any:
    """Convert the values of the library to plain values, and collect their lines."""
    place: Any = getattr(value, "lc", None)
    if not path and place is not None and place.line is not None:
        lines[path] = place.line + first
    match value:
        case Mapping():
            for key in value:
                lines[(*path, str(key))] = cast("Any", place).key(key)[0] + first
            return {str(key): _plain(each, (*path, str(key)), lines, first) for key, each in value.items()}
        case str():
            return str(value)
        case bool() | None:
            return value
        case Sequence():
            for at in range(len(value)):
                lines[(*path, at)] = cast("Any", place).item(at)[0] + first
            return [_plain(each, (*path, at), lines, first) for at, each in enumerate(value)]
        case int():
            return int(value)
        case float():
            return float(value)
        case _:  # a date or a time
            return str(value)


def _texts(node: Any) -> Any:
    """Convert a node of the library to mappings, lists and texts."""
    if node is None:  # an empty file
        return None
    match node.id:
        case "mapping":
            return {str(key.value): _texts(value) for key, value in node.value}
        case "sequence":
            return [_texts(value) for value in node.value]
        case "scalar":
            return str(node.value)
        case _:
            return None
