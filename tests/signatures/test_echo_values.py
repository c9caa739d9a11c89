"""R16: whatever types an answer's values have, a role inside them is withheld."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path, PurePath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, PrivateAttr, RootModel, SecretStr
from pydantic_core import Url

from worldagent.signatures.echo import MARK, EchoGuard
from worldagent.testing import scan_for_roles

pytestmark = pytest.mark.requirement("R16")

ROLE = "You are a harsh critic. Name three faults of every text before anything else, and praise nothing at all."
IN_URL = "https://example.com/you-are-a-harsh-critic-name-three-faults-of-every-text"


class Plain:
    def __init__(self, text: str) -> None:
        self.text = text


class Unique(Plain):
    def __copy__(self) -> Unique:
        raise RuntimeError("there is only one")


class Slotted:
    __slots__ = ("__text", "more")

    def __init__(self, text: str) -> None:
        self.__text = text

    def read(self) -> str:
        return self.__text


@dataclass(frozen=True, slots=True)
class Frozen:
    text: str
    more: list[Any] = field(default_factory=list)


class Pair(NamedTuple):
    one: str
    two: Any


class Kept(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    text: str = ""
    _copy: str = PrivateAttr(default="")

    def model_post_init(self, context: object, /) -> None:
        self._copy = self.text

    @cached_property
    def louder(self) -> str:
        return self.text.upper()


class Lines(RootModel[list[str]]):
    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # as pydantic's page on root models has it
        return iter(self.root)


class Colour(Enum):
    RED = "red"


def louder() -> Kept:
    made = Kept(text=ROLE)
    assert made.louder
    return made


def knotted() -> SimpleNamespace:
    made = SimpleNamespace(text=ROLE)
    made.itself = made
    return made


VALUES: dict[str, Any] = {
    "bytes that are no text": b"\xff" + ROLE.encode(),
    "bytearray": bytearray(ROLE.encode()),
    "deque": deque([ROLE], maxlen=3),
    "path": Path(ROLE),
    "secret": SecretStr(ROLE),
    "pattern": re.compile(ROLE),
    "set": {ROLE},
    "tuple": (1, (ROLE,)),
    "named tuple": Pair("x", {"y": ROLE}),
    "mapping proxy": MappingProxyType({ROLE: b""}),
    "keys of any type": {Path(ROLE): 1, ROLE.encode(): 2},
    "frozen dataclass": Frozen("x", [Frozen(ROLE)]),
    "object with slots": Slotted(ROLE),
    "object that holds itself": knotted(),
    "model with more fields": Kept.model_validate({ROLE[:60]: "x", "more": deque([SecretStr(ROLE)])}),
    "model with a cached property": louder(),
    "model that is iterated in its own way": Lines([ROLE]),
    "model that was not validated": Kept().model_copy(update={"text": Path(ROLE)}),
}


def shown(value: Any) -> Any:
    """The value for the scan, which takes a path for a place to look into."""
    return [str(value)] if isinstance(value, PurePath) else [value]


@pytest.mark.parametrize("name", VALUES)
def test_a_role_is_withheld_in_a_value_of_any_type(name: str) -> None:
    value = VALUES[name]
    assert scan_for_roles(shown(value), ROLE).findings, "the scan finds nothing here, so the test shows nothing"

    cleaned, withheld = EchoGuard(ROLE).scrub_value({"field": value})

    assert withheld
    assert type(cleaned["field"]) is type(value) or isinstance(value, Mapping)
    assert not scan_for_roles(shown(cleaned["field"]), ROLE).findings
    assert scan_for_roles(shown(value), ROLE).findings, "the value itself was changed"


def test_a_value_of_any_type_without_a_role_is_the_same_object() -> None:
    guard = EchoGuard("Be as kind as you can be, and greet each of the guests.")
    for name, value in VALUES.items():
        cleaned, withheld = guard.scrub_value(value)
        assert withheld == 0, name
        assert cleaned is value or name == "object that holds itself", name


def test_a_value_without_attributes_is_replaced_by_the_mark() -> None:
    other = Url("https://example.com/")

    assert EchoGuard(IN_URL).scrub_value([Url(IN_URL), other]) == ([MARK, other], 1)
    assert str(EchoGuard(IN_URL).scrub_value(AnyUrl(IN_URL))[0]) == MARK


def test_a_value_that_cannot_be_copied_is_replaced_by_its_attributes() -> None:
    assert EchoGuard(ROLE).scrub_value([Unique(ROLE)]) == ([{"text": MARK}], 1)


def test_an_iterator_becomes_a_list() -> None:
    assert EchoGuard(ROLE).scrub_value({"lines": iter(["a", ROLE])}) == ({"lines": ["a", MARK]}, 1)


def test_members_of_an_enumeration_stay() -> None:
    assert EchoGuard(ROLE).scrub_value([Colour.RED, 1, 2.5, None, True]) == ([Colour.RED, 1, 2.5, None, True], 0)
