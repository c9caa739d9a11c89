"""Conditions of a rule on one argument of a call.

A rule that approves must be certain that its condition holds. For a rule that asks or refuses, a possible reading of
the argument is enough.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...core import canonical_json
from ...core.errors import PolicyInvalid
from ...core.validation import describe_failure, storable_json
from ..yaml import near
from .labels import Form, Label, can_be_from, is_from
from .texts import command_pattern, email_pattern, host_pattern, is_at_host, is_command, is_email


class Data(BaseModel):
    """A frozen model whose validation errors are raised as a `PolicyInvalid`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
            return
        except ValidationError as failure:
            problems = describe_failure(failure)
        kind = type(self).__name__.lower()
        what = f"the {kind} {data['name']!r}" if isinstance(data.get("name"), str) else f"a {kind}"
        keys = ", ".join(type(self).model_fields)
        raise PolicyInvalid(f"{what} cannot be read: {problems}", remedy=f"its keys are: {keys}")


_WILD = re.compile(r"[*?\[]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UP = re.compile(r"(^|[/\\])\.\.([/\\]|$)")
_OTHER_ROOT = re.compile(r"~|//|[A-Za-z]:")
"""The beginnings of paths whose place the text does not tell: a home directory, another machine, a drive."""


LabelsIn = Callable[[Any], Iterable[Label]]

ANY: Final = "any"
"""Every origin of a value, and everybody who may see one."""

Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class Predicate(Data):
    """A condition on one argument. It needs at least one attribute, and all attributes that are set must hold.

    In a rule that asks or refuses, possible readings of the argument count as well: a text read line by line or without
    control characters, the normalized path, an item of a list, a number that is written as a text.

    Attributes:
        equals: It is this JSON value.
        among: It is one of these JSON values.
        like: It is a text that the glob matches. To approve, a wildcard matches no line break, no other control
            character and no path that climbs with `..`; to ask or refuse, it matches all of them, and a path that
            climbs out of where it begins matches any glob.
        under: It is a path at or below this folder, judged by its text: `..` is followed, links are not resolved. If
            the text does not tell, such as whether a relative path leads into an absolute folder, an approving rule
            does not match, and a rule that asks or refuses does.
        least: It is a number that is not smaller.
        most: It is a number that is not greater.
        between: It is a number from the first to the second of these two.
        longest: It is a text or a list with at most this many characters or items.
        host: It is a URL at this host, or below it if it begins with `*.`: `api.example.com`, `*.example.com`. To
            approve, its scheme must be `http` or `https` and its port the default one, unless the host names others, as
            in `wss://example.com:8443`; it must have no user name, and every parser must read the same host.
        email: It is exactly one mail address: `ana@corp.com`, or `*@corp.com`, where the wildcard is in the local part.
        command: It is one command without anything that a shell expands, given by its program and first arguments:
            `git status`. A last word `*` allows more arguments, as in `git log *`, but no options; name those.
        each: It is a list with at least one item, and this glob, value or predicate holds of every item.
        origin: Each text and number in it comes from one of these origins, as globs: `person`, or `FUNCTION.FIELD` for
            a declared field of an untrusted function; `any` is every origin. Where the model is not guarded they are
            recognised by equality, which a stranger's text that knows the rule can arrange.
        form: What it can carry at most, with `origin`: `value` (the person's or a declared field, the default),
            `bounded`, `span` or `words` (the default for the origin `any`).
        chosen: What can have chosen it among others, with `origin`, as globs over origins; by default anything.
        readers: The argument of the call that names who gets it, such as `to`: all of them must be among the `readers`
            of the functions that it was made of. `any` releases it to everybody.
        plain: It is text without anything to click on or to write to: no address of a page or of mail, no markup.
    """

    equals: Any = None
    among: tuple[Any, ...] | None = Field(default=None, min_length=1)
    like: str | None = Field(default=None, min_length=1)
    under: str | None = Field(default=None, min_length=1)
    least: float | None = Field(default=None, allow_inf_nan=False, strict=True)
    most: float | None = Field(default=None, allow_inf_nan=False, strict=True)
    between: tuple[Number, Number] | None = None
    longest: int | None = Field(default=None, ge=0, strict=True)
    host: str | None = None
    email: str | None = None
    command: str | None = None
    each: Condition = None
    origin: str | tuple[str, ...] | None = Field(default=None, min_length=1)
    form: Form | None = None
    chosen: str | tuple[str, ...] | None = None
    readers: str | None = Field(default=None, min_length=1)
    plain: Literal[True] | None = None

    @field_validator("equals", "among")
    @classmethod
    def _is_json(cls, given: Any) -> Any:
        try:
            storable_json(given)
        except (TypeError, ValueError):
            raise PydanticCustomError("json", "is not JSON") from None
        return given

    @field_validator("under")
    @classmethod
    def _normalized_folder(cls, path: str | None) -> str | None:
        return None if path is None else _normalized_path(path)

    @field_validator("host", "email", "command")
    @classmethod
    def _is_pattern(cls, given: str | None, info: ValidationInfo) -> str | None:
        if given is not None:
            try:
                _PATTERNS[info.field_name or ""](given)
            except ValueError as error:
                raise PydanticCustomError("pattern", "{problem}", {"problem": str(error)}) from None
        return given

    @field_validator("between")
    @classmethod
    def _in_order(cls, given: tuple[float, float] | None) -> tuple[float, float] | None:
        if given is not None and given[0] > given[1]:
            raise PydanticCustomError("order", "the first number is greater than the second")
        return given

    @field_validator("each", mode="before")
    @classmethod
    def _said(cls, given: Any) -> Any:
        return read_condition("", given)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self._given():
            raise PydanticCustomError("empty", "it has no condition, and would never hold")
        if self.origin is None and (self.form is not None or self.chosen is not None):
            raise PydanticCustomError("origin", "form and chosen are about an origin, which it does not name")
        return self

    def holds(self, value: Any, *, unsure: bool = False, labels_in: LabelsIn | None = None) -> bool:
        """Whether it holds of an argument.

        Args:
            value: The argument, as JSON.
            unsure: Whether a possible reading of the argument is enough.
            labels_in: Returns the labels of what is in it; None if labels are not known.
        """

        def one(name: str) -> bool:
            if name in ("form", "chosen", "readers"):  # two belong to the origin, and the rule knows who gets it
                return True
            if name == "origin":
                return self.comes_from(value, labels_in, unsure=unsure)
            if name == "each":
                return self._each(value, unsure, labels_in)
            return _of(value, partial(self._one, name, unsure=unsure), unsure)

        return all(map(one, self._given()))

    def comes_from(self, value: Any, labels_in: LabelsIn | None, *, unsure: bool = False) -> bool:
        """Whether an argument comes from its origins; see `holds`."""
        if labels_in is None:
            return unsure
        found = [self._allows(label, unsure) for label in labels_in(value)]
        return any(found) if unsure else bool(found) and all(found)

    @property
    def widest(self) -> Form:
        """The widest form of a value that a rule with it approves."""
        return self.form or ("words" if ANY in _several(self.origin) else "value")

    def _allows(self, label: Label, unsure: bool) -> bool:
        globs = _several(self.origin)
        if not label.carries_at_most(self.form or "words" if unsure else self.widest):
            return False
        if ANY not in globs and not (can_be_from if unsure else is_from)(label.origins, globs):
            return False
        return unsure or self.chosen is None or is_from(label.chosen, _several(self.chosen))

    def _given(self) -> list[str]:
        return [name for name in self.model_fields_set if name in ("equals", "each") or getattr(self, name) is not None]

    def _one(self, name: str, value: Any, *, unsure: bool) -> bool:
        match name:
            case "equals":
                return _same(value, self.equals, unsure)
            case "among":
                return any(_same(value, each, unsure) for each in self.among or ())
            case "like":
                return _matches(value, self.like or "", unsure)
            case "under":
                return isinstance(value, str) and _is_under(value, self.under or "", unsure)
            case "longest":
                return isinstance(value, str | list) and len(value) <= (self.longest or 0)
            case "plain":
                return unsure or (isinstance(value, str) and is_plain(value))
            case "host" | "email" | "command":
                return isinstance(value, str) and _TESTS[name](value, getattr(self, name), unsure=unsure)
            case _:
                return self._measures(name, value, unsure)

    def _each(self, value: Any, unsure: bool, labels_in: LabelsIn | None) -> bool:
        if unsure:
            return _of(value, partial(holds, self.each, unsure=True, labels_in=labels_in), True)
        return (
            isinstance(value, list)
            and bool(value)
            and all(holds(self.each, each, labels_in=labels_in) for each in value)
        )

    def _measures(self, name: str, value: Any, unsure: bool) -> bool:
        number = _number(value, unsure)
        if number is None or number != number:
            return number is not None and unsure
        if name == "between":
            low, high = self.between or (0, 0)
            return low <= number <= high
        return number >= (self.least or 0) if name == "least" else number <= (self.most or 0)


_PATTERNS: Final[Mapping[str, Callable[[str], object]]] = {
    "host": host_pattern,
    "email": email_pattern,
    "command": command_pattern,
}
_TESTS: Final = {"host": is_at_host, "email": is_email, "command": is_command}


_ACTIVE: Final = re.compile(
    r"(?i)[a-z][a-z0-9+.-]*:(?=[^\s\d])|\b(?:https?|tel|sms|callto|skype|facetime|whatsapp|bitcoin):\d"
    r"|//|\w@\w|\b[\w-]+\.(?=[^\W\d_]{2,})|[<>`\[\]]"
)
"""Addresses of pages and of mail, names of hosts, and what begins HTML or Markdown."""


def is_plain(text: str) -> bool:
    """Whether a text has nothing to click on or to write to."""
    shown = "".join(each for each in unicodedata.normalize("NFKC", text) if unicodedata.category(each) != "Cf")
    shown = shown.replace("\u3002", ".")  # a dot in names of hosts, too
    return _ACTIVE.search(shown) is None


def asks_for_origin(said: Condition) -> bool:
    """Whether a condition names where a value can come from."""
    return origin_in(said) is not None


def origin_in(said: Condition) -> Predicate | None:
    """The predicate about the origin of a value, or of its items; None if there is none."""
    if not isinstance(said, Predicate):
        return None
    return said if said.origin is not None else origin_in(said.each)


def named_origins(said: Condition) -> Iterator[tuple[str, bool]]:
    """The globs over origins in a condition, and whether a value must be a declared field to fit there."""
    if isinstance(said, Predicate):
        yield from ((glob, said.widest == "value") for glob in _several(said.origin))
        yield from ((glob, False) for glob in _several(said.chosen))
        yield from named_origins(said.each)


def named_readers(said: Condition) -> str | None:
    """The argument that a condition names for those who get a value."""
    if not isinstance(said, Predicate):
        return None
    return said.readers or named_readers(said.each)


def _several(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given or ()


def read_condition(path: str, said: Any) -> Any:
    """Read a condition on one argument. Unlike a pydantic union, an error names only the place and one problem.

    Raises:
        PydanticCustomError: The condition cannot be read.
    """
    if isinstance(said, str | int | float | Predicate | None):
        problem = "NaN never holds" if said != said else ""
    elif not isinstance(said, Mapping):
        problem = "give a glob, a value or a predicate"
    elif unknown := [str(key) for key in said if str(key) not in Predicate.model_fields]:
        named = list(Predicate.model_fields)
        problem = (
            f"there is no predicate {unknown[0]!r}; {near(unknown[0], named)}the predicates are: {', '.join(named)}"
        )
    else:
        try:
            return Predicate(**{str(key): each for key, each in said.items()})
        except PolicyInvalid as error:
            problem = error.problem.removeprefix("a predicate cannot be read: ")
    if not problem:
        return said
    where = f"{path}: " if path else ""
    raise PydanticCustomError("said", "{where}{problem}", {"where": where, "problem": problem})


Condition = str | bool | int | float | Predicate | None
"""A condition of a policy on an argument: a glob for a text, a value, or a predicate."""


def holds(said: Condition, value: Any, *, unsure: bool = False, labels_in: LabelsIn | None = None) -> bool:
    """Whether a condition holds of the value of an argument; with `unsure`, whether it holds of a possible reading."""
    match said:
        case Predicate():
            return said.holds(value, unsure=unsure, labels_in=labels_in)
        case str():
            return _of(value, partial(_matches, glob=said, unsure=unsure), unsure)
        case _:
            return _of(value, partial(_same, other=said, unsure=unsure), unsure)


def find(arguments: Mapping[str, Any], path: str) -> Iterator[Any]:
    """Yield every value that a function may read at a dotted path, for rules that ask or refuse.

    A key may contain the dots of the path, case is ignored, and lists are searched. Approving rules use `received` of
    `arguments` instead.
    """
    yield from _below(arguments, path.split("."))


def _below(value: Any, steps: list[str]) -> Iterator[Any]:
    if not steps:
        yield value
    elif isinstance(value, Mapping):
        wanted = {".".join(steps[:size]).casefold(): size for size in range(1, len(steps) + 1)}
        for key, each in value.items():
            if key.casefold() in wanted:
                yield from _below(each, steps[wanted[key.casefold()] :])
    elif isinstance(value, list):
        for each in value:
            yield from _below(each, steps)


def _of(value: Any, test: Callable[[Any], bool], unsure: bool) -> bool:
    """Whether a test holds of a value; with `unsure`, whether it holds of anything in the value."""
    if test(value):
        return True
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return unsure and any(_of(each, test, unsure) for each in inside)


def _matches(value: Any, glob: str, unsure: bool) -> bool:
    if unsure:
        text = _text(value)
        return text is not None and any(_climbs_out(each) or fnmatchcase(each, glob) for each in _readings(text))
    if not isinstance(value, str):
        return False
    if not _WILD.search(glob):
        return value == glob
    return not _CONTROL.search(value) and not _UP.search(value) and fnmatchcase(value, glob)


def _readings(text: str) -> Iterator[str]:
    """Yield the readings of a text: as it is, by lines, without control characters, and as normalized paths."""
    yield text
    pieces = [text] if _CONTROL.search(text) is None else [_CONTROL.sub("", text), *_CONTROL.split(text)]
    for piece in filter(None, pieces):
        yield piece
        yield _normalized_path(piece.replace("\\", "/"))


def _normalized_path(path: str) -> str:
    """Return a path without `.`, `..` and double slashes, also at its beginning."""
    return re.sub("^//", "/", posixpath.normpath(path))


def _climbs_out(path: str) -> bool:
    """Whether a path climbs above the folder where it begins."""
    return path == ".." or path.startswith("../")


def _is_under(value: str, folder: str, unsure: bool) -> bool:
    path = _normalized_path(value)
    certain = not (_CONTROL.search(value) or "\\" in value or _OTHER_ROOT.match(value) or _climbs_out(path))
    if not certain or posixpath.isabs(path) != posixpath.isabs(folder) or _climbs_out(folder):
        return unsure
    return folder in (".", "/") or path == folder or path.startswith(f"{folder}/")


def _same(value: Any, other: Any, unsure: bool) -> bool:
    if unsure:
        text, wanted = _text(value), _text(other)
        return bool(value == other) or (text is not None and wanted is not None and wanted in _readings(text))
    # True equals 1 in Python, but not in JSON.
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(_same(*pair, False) for pair in zip(value, other, strict=True))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(_same(each, other[key], False) for key, each in value.items())
    alike = type(value) is type(other) or (_is_number(value) and _is_number(other))
    return alike and bool(value == other)


def _text(value: Any) -> str | None:
    """Return a text, a number or a boolean as a text."""
    if isinstance(value, str):
        return value
    return canonical_json(value) if isinstance(value, int | float) else None


def _number(value: Any, unsure: bool) -> float | None:
    if _is_number(value) or (unsure and isinstance(value, bool)):
        return value  # type: ignore[no-any-return]  # a number, as JSON
    if unsure and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Predicate.model_rebuild()
