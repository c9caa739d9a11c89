"""Reads a file of cases: messages, with what their answers should be. YAML and JSON Lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain, count
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ...core.errors import EvalInvalid, InvalidArgument, RoleInvalid
from ...core.files import read_limited
from ...core.validation import is_line, is_text, storable_json
from ...harness.yaml import LONGEST, YamlDocument, read_yaml
from ...role_resolution import Role

MAX_ID: Final = 80
"""Characters of the id of a case, or of a tag."""

_MAX_LINES_BYTES: Final = 1 << 26  # of a file of JSON Lines
_MADE_ID: Final = 48  # characters of an id that is made of the message
_KEYS: Final = ("id", "message", "expected", "role", "metric", "tags")
_LINES: Final = (".jsonl", ".ndjson")
_YAML: Final = (".yaml", ".yml", ".json")
_FORMS: Final = "write cases as YAML (.yaml, .yml, .json) or as JSON Lines (.jsonl)"


@dataclass(frozen=True, slots=True)
class EvalCase:
    """One message, with what its answer should be.

    Attributes:
        message: The person's message.
        expected: What the metric compares the answer with, as JSON.
        role: The call role of its turn. No run keeps it, and the metric does not get it.
        metric: The metric of this case, in place of that of the run: `exact`, `contains`, `flows`, `MODULE:FUNCTION`,
            or a function.
        id: What results name it by. By default it is made of the message.
        tags: Names of groups that it belongs to.
        where: Its file and line, for errors.

    Raises:
        InvalidArgument: A field is invalid; the text names it.
    """

    message: str
    _: KW_ONLY
    expected: Any = None
    role: Role | None = field(default=None, repr=False)
    metric: str | Callable[..., Any] | None = None
    id: str = ""
    tags: tuple[str, ...] = ()
    where: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if not is_text(self.message) or not self.message.strip():
            raise InvalidArgument("`message` must be a text with more than blanks", remedy="write the person's message")
        if self.role is not None and not isinstance(self.role, Role):
            raise InvalidArgument(
                f"`role` must be a Role or None, got a {type(self.role).__name__}", remedy="pass Role(name, content)"
            )
        object.__setattr__(self, "id", self.id or _id_of(self.message))
        if not is_line(self.id, MAX_ID):
            raise InvalidArgument(f"`id` must be 1 to {MAX_ID} printable characters", remedy="shorten it")
        if isinstance(self.tags, str) or not all(is_line(tag, MAX_ID) for tag in self.tags):
            raise InvalidArgument(
                f"`tags` must be a list of names of 1 to {MAX_ID} printable characters", remedy='write tags: ["geo"]'
            )
        object.__setattr__(self, "tags", tuple(self.tags))
        if not (self.metric is None or callable(self.metric) or (isinstance(self.metric, str) and self.metric)):
            raise InvalidArgument("`metric` must be a name or a function", remedy="write for example metric: contains")
        with suppress(TypeError, ValueError, RecursionError):
            storable_json(self.expected)
            return
        raise InvalidArgument("`expected` must be JSON", remedy="use JSON values, and text that UTF-8 can hold")

    def __str__(self) -> str:
        return self.id

    @property
    def reply(self) -> Any:
        """As `expected`: a metric of `worldagent optimise Converse` reads it by this name."""
        return self.expected


def read_cases(path: str | PathLike[str]) -> list[EvalCase]:
    """Read the cases of a file.

    A file ending with `.yaml`, `.yml` or `.json` has a list of cases, and one ending with `.jsonl` has a case on each
    line. The keys of a case are `message`, `expected`, `role` (a text), `metric`, `id` and `tags`; only `message` is
    required.

    Args:
        path: The file.

    Raises:
        EvalInvalid: The file cannot be read, or a case is invalid; the text names the file and the line.
        MissingExtra: The file is YAML, and the extra `yaml` is not installed.
    """
    file = Path(path)
    lines = file.suffix.lower() in _LINES
    if not lines and file.suffix.lower() not in _YAML:
        raise EvalInvalid(f"{str(file)!r} has a name that is not one of a file of cases", remedy=_FORMS)
    data = read_limited(file, _MAX_LINES_BYTES if lines else LONGEST)
    if isinstance(data, str):
        raise EvalInvalid(f"the cases {str(file)!r} cannot be read: {data}", remedy="pass the path of a file of cases")
    document = _json_lines(data, str(file)) if lines else read_yaml(data, name=str(file), error=EvalInvalid)
    if not isinstance(document.data, list) or not document.data:
        problem = "has no cases" if not document.data else "must be a list of cases"
        raise document.invalid(f"the file {problem}", "begin each case with '- message:'" if not lines else _FORMS)
    taken = {value["id"] for value in document.data if isinstance(value, dict) and isinstance(value.get("id"), str)}
    seen: set[str] = set()
    cases: list[EvalCase] = []
    for place, value in enumerate(document.data):
        case = _case(document, place, value, seen)
        if "id" not in value:
            case = replace(case, id=_free(case.id, taken))
        taken.add(case.id)
        cases.append(case)
    return cases


def check_ids(cases: Collection[EvalCase]) -> None:
    """Refuse cases of which two have one id.

    Raises:
        InvalidArgument: Two have.
    """
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise InvalidArgument(f"two cases have the id {case.id!r}", remedy="give each of them an id of its own")
        seen.add(case.id)


def _free(made: str, taken: Collection[str]) -> str:
    """An id that is made of a message, with a number if another case has it."""
    names = chain((made,), (f"{made}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def _id_of(message: object) -> str:
    words = re.sub(r"\W+", "-", str(message).lower()).strip("-_")
    if len(words) > _MADE_ID:
        words = words[: _MADE_ID + 1].rpartition("-")[0] or words[:_MADE_ID]
    return words or "case"


def _json_lines(data: bytes, name: str) -> YamlDocument[EvalInvalid]:
    document: YamlDocument[EvalInvalid] = YamlDocument(name=name, error=EvalInvalid, data=[], lines={(): 1})
    lines: dict[tuple[str | int, ...], int] = {(): 1}
    found: list[Any] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        lines[len(found),] = number
        try:
            found.append(json.loads(line, object_pairs_hook=_pairs))
            continue
        except _Twice as twice:
            problem, remedy = f"the key {str(twice)!r} is there twice", "leave one of them out"
        except (ValueError, RecursionError):
            problem, remedy = "the line is not JSON", 'write an object, such as {"message": "Hello"}'
        raise replace(document, lines=lines).invalid(problem, remedy, len(found))
    return replace(document, data=found, lines=lines)


class _Twice(ValueError):
    """An object has a key twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twice(key)
        found[key] = value
    return found


def _case(document: YamlDocument[EvalInvalid], place: int, value: Any, seen: set[str]) -> EvalCase:
    if not isinstance(value, dict):
        raise document.invalid("a case must be an object with a message", "write 'message: ' and the message", place)
    document.check_keys(value, _KEYS, "a case", place)
    for key in ("message", "id", "role", "metric"):
        _check_text(document, value, key, place)
    if "id" in value:
        if value["id"] in seen:
            raise document.invalid(
                f"another case has the id {value['id'][:MAX_ID]!r}", "give each an id of its own", place, "id"
            )
        seen.add(value["id"])
    if not isinstance(value.get("tags", []), list):
        raise document.invalid("`tags` must be a list", 'write for example tags: ["geo"]', place, "tags")
    try:
        return EvalCase(
            value["message"],
            expected=value.get("expected"),
            role=Role("case", value["role"]) if "role" in value else None,
            metric=value.get("metric"),
            id=value.get("id", ""),
            tags=tuple(value.get("tags", ())),
            where=document.where(place),
        )
    except (InvalidArgument, RoleInvalid) as error:
        problem, remedy = error.problem, error.remedy
    # A problem begins with the field in backticks; it has the line of that field.
    field_named = re.match(r"`(\w+)`", problem)
    raise document.invalid(problem, remedy, place, *([field_named[1]] if field_named else []))


def _check_text(document: YamlDocument[EvalInvalid], value: dict[str, Any], key: str, place: int) -> None:
    if key not in value and key != "message":
        return
    if key not in value:
        raise document.invalid("a case must have a message", "write 'message: ' and the message", place)
    if not isinstance(value[key], str) or not value[key].strip():
        quotes = "" if isinstance(value[key], str) else ", in quotes where it looks like something else"
        raise document.invalid(f"`{key}` must be a text with more than blanks", f"write a text{quotes}", place, key)
