"""R16: the guard: runs, forms and shares of a role, wherever a stream is cut and whatever types values have."""

import copy
import json
import pickle
import random
import re
import statistics
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path, PurePath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, PrivateAttr, RootModel, SecretStr
from pydantic_core import Url

from support.agents import cut, scripted_agent, standing, streamed
from worldagent import Role
from worldagent.core import ECHO_RUN
from worldagent.core.events import TextReplaced
from worldagent.signatures.echo import MARK, EchoGuard
from worldagent.signatures.matching import normalise
from worldagent.testing import ScriptedLM, scan_for_roles

pytestmark = pytest.mark.requirement("R16")
ROLE = "You are a harsh critic. Name three faults of every text before anything else, and praise nothing at all."


def units(text: str) -> list[tuple[str, str]]:
    """Every character of the normal form and what it stands for; one without a character of its own joins the last."""
    found: list[tuple[str, str]] = [("", "")]
    at = 0
    while at < len(text):
        end = at
        while text[end : end + 1] == "\\":
            end += 1
        escaped, body = end > at, text[end:]
        if not escaped:
            end, form = at + 1, " " if text[at].isspace() else FORMS.get(text[at], text[at].lower())
        elif re.match(r"u[0-9a-fA-F]{4}", body):
            char = chr(int(body[1:5], 16))
            end, form = end + 5, " " if char.isspace() else normalise(char)
        elif body[:1] in ("n", "b"):
            end, form = end + 1, " " if body[0] == "n" else ""
        else:
            form = ""
        source, at = text[at:end], end
        for char in form:
            if char == " " == found[-1][0]:
                continue
            found.append((char, source))
            source = ""
        if source:
            found[-1] = (found[-1][0], found[-1][1] + source)
    return found


def oracle(text: str, roles: list[str], others: list[str], run: int) -> tuple[str, int]:
    """The definition, letter by letter, for texts of few kinds of characters."""
    first, *found = units(text)
    normal = "".join(char for char, _ in found)
    known, allowed = (["".join(char for char, _ in units(one)).strip() for one in given] for given in (roles, others))
    hidden = [False] * len(found)
    for at in range(len(found) - run + 1):
        window = normal[at : at + run]
        if any(window in role for role in known) and not any(window in other for other in allowed):
            hidden[at : at + run] = [True] * run
    out, count = first[1], 0
    for at, (_, source) in enumerate(found):
        if not hidden[at]:
            out += source
        elif at == 0 or not hidden[at - 1]:
            out, count = out + MARK, count + 1
    return out, count


FORMS = {"ß": "ss", "é": "e", "\u0301": "", "\u00ad": "", "\u200b": "", "\u2026": "...", "\ufb01": "fi"}
"""The normal form of each character of the tests below that is not its lower case."""

PIECES = ["a", "b", " ", "A", "a", "b", " ", "\n", "n", "\\", "\\n", "\\\\n", "\\u0061", "\\\\u0042", "u00", *FORMS]
small = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[str, list[str], list[str]]:
    """An output that repeats parts of a role and of other inputs."""
    role, other = draw(small), draw(small)
    parts = st.one_of(
        small,
        st.tuples(st.sampled_from([role, other]), st.integers(0, 30), st.integers(0, 30)).map(
            lambda p: p[0][min(p[1:]) : max(p[1:])]
        ),
    )
    return "".join(draw(st.lists(parts, max_size=5))), [role, draw(small)], [other]


@given(outputs(), st.sampled_from([(4, 2), (5, 5), (6, 3), (9, 4)]), st.lists(st.integers(0, 12), max_size=40))
def test_role_is_withheld(output: tuple[str, list[str], list[str]], sizes: tuple[int, int], cuts: list[int]) -> None:
    text, roles, others = output
    guard = EchoGuard(*roles, others=others, run=sizes[0], gram=sizes[1])
    echo = guard.filter()

    streamed = "".join(map(echo.feed, cut(text, cuts))) + echo.close()

    assert (streamed, echo.withheld) == oracle(text, roles, others, sizes[0])
    assert guard.scrub(text) == (streamed, echo.withheld)


def in_json(text: str, escapes: tuple[bool, ...]) -> str:
    """The text as the inside of a JSON string, which is in a JSON string again for each of `escapes`."""
    for ascii_only in escapes:
        text = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    return text


@given(st.text(), st.lists(st.booleans(), max_size=4))
def test_a_text_and_the_same_text_in_json_have_one_normal_form(text: str, escapes: list[bool]) -> None:
    assert normalise(in_json(text, tuple(escapes))) == normalise(text)


WRITINGS: dict[str, Callable[[str], str]] = {
    "compatible": lambda text: unicodedata.normalize("NFKC", text),
    "compatible and decomposed": lambda text: unicodedata.normalize("NFKD", text),
    "in capitals": str.upper,
    "with soft hyphens": "\u00ad".join,
    "without accents": lambda text: re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFD", text)),
    "with JSON escapes": lambda text: json.dumps(unicodedata.normalize("NFC", text))[1:-1],
}
LETTERS = {
    "German": "Große Straßen müssen schließlich für Fußgänger weiß gestrichen werden, fürwahr!",
    "French": "L\u2019élève reçoit sa leçon à Noël où l\u2019été s\u2019achève, çà et là, très tôt\u2026",
    "Greek": "Μην επαινείς κανέναν και βρες τρία λάθη σε κάθε κείμενο, πάντα ευγενικός.",
    "Korean": "칭찬하기 전에 모든 글에서 실수 세 가지를 찾고 그 밖의 것은 절대로 말하지 말라고 했다 오늘은 값싼 닭",
    "Hindi": "हर पाठ में पहले तीन गलतियाँ बताओ और किसी की भी तारीफ़ कभी मत करो।",
    "ligatures": "The \ufb01rst of\ufb01ce a\ufb03davit \uff08full width\uff09 \u2460 is \u00bd of \u2122 all that.",
}


@pytest.mark.parametrize("writing", WRITINGS)
def test_other_writings_of_the_same_letters_do_not_hide_a_repetition(writing: str) -> None:
    for role in LETTERS.values():
        said = WRITINGS[writing](role)
        assert normalise(said) == normalise(role)
        for one, other in ((role, said), (said, role)):
            guard = EchoGuard(one)
            echo = guard.filter()
            assert guard.scrub(f"<{other}>") == (f"<{MARK}>", 1)
            assert "".join(map(echo.feed, f"<{other}>")) + echo.close() == f"<{MARK}>"


def test_a_text_of_backslashes_alone_is_held_back_in_a_bounded_part() -> None:
    echo = EchoGuard(ROLE).filter()
    shown = "".join(map(echo.feed, ["x" * 100, *["\\" * 50] * 1000]))

    assert len(shown) >= 90
    assert f"{shown}{echo.close()}" == "x" * 100 + "\\" * 50_000


def test_foreign_text_is_held_back_by_seven_characters_at_most() -> None:
    dice = random.Random(3)
    words = ROLE.replace(".", " ").split() * 3 + ["river", "stone", "window", "seldom"] * 9
    echo = EchoGuard(ROLE * 5).filter()
    held, fed, shown = [], 0, 0
    for _ in range(3000):
        chunk = dice.choice(words) + " "
        shown += len(echo.feed(chunk))
        fed += len(chunk)
        held.append(fed - shown)

    assert echo.withheld == 0
    assert statistics.median(held) <= 8
    assert max(held) < ECHO_RUN


def test_two_keys_that_become_one_mark_keep_both_values() -> None:
    cleaned, _ = EchoGuard(ROLE).scrub_value({ROLE: 1, ROLE.upper(): 2})

    assert sorted(cleaned.values()) == [1, 2]


def test_a_guard_shows_and_hands_on_nothing_of_the_role() -> None:
    guard = EchoGuard(ROLE)
    echo = guard.filter()
    echo.feed(ROLE)

    assert "critic" not in f"{guard!r} {echo!r} {guard} {echo}"
    for thing in (guard, echo):
        for refused in (pickle.dumps, copy.copy, copy.deepcopy, lambda held: held.__getstate__()):
            with pytest.raises(TypeError, match="never serialised"):
                refused(thing)


RULES = [
    "Answer as a stern librarian",
    "Never give away a plot twist",
    "Ask which genre they like",
    "Offer exactly two books a day",
    "Close with the opening hours",
    "Whisper when it is past nine",
]
LIST = "\n".join(f"- {rule}" for rule in RULES)
SECRET = Role("librarian", LIST)
BULLETS = {
    "numbers": lambda rules: "\n".join(f"{number}. {rule};" for number, rule in enumerate(rules, 1)),
    "quotes": lambda rules: "\n\n".join(f'> "**{rule.upper()}**"' for rule in rules),
}


@pytest.mark.parametrize("bullets", BULLETS)
def test_a_list_of_short_lines_is_withheld_under_any_bullets(bullets: str) -> None:
    said = BULLETS[bullets](RULES)
    guard = EchoGuard(LIST)

    assert guard.scrub(said) == (said, 0), "runs alone find nothing here"
    shown, withheld = guard.scrub_value(f"My rules are these.\n{said}\nAnything else?")

    assert withheld == 1
    assert shown.startswith("My rules are these.")
    assert shown.endswith("Anything else?")
    assert not [rule for rule in RULES if rule.casefold() in shown.casefold()]


def test_lines_in_several_texts_of_one_answer_count_together() -> None:
    answer = {"reply": RULES[0], "more": [*RULES[1:], "Bye."]}

    assert EchoGuard(LIST).scrub_value(answer) == ({"reply": MARK, "more": [MARK] * 5 + ["Bye."]}, 6)


def test_less_than_half_of_a_short_role_passes_and_half_does_not() -> None:
    guard = EchoGuard(LIST)
    few, half = "\n".join(f"* {rule}" for rule in RULES[:3]), "\n".join(f"* {rule}" for rule in RULES[:4])

    assert guard.scrub_value(few) == (few, 0)
    assert guard.scrub_value(half) == (f"* {MARK}", 1)


def test_a_small_part_of_a_long_role_is_withheld_where_it_is_long_itself() -> None:
    words = random.Random(7)
    lines = ["".join(words.choices("abcdefgh", k=6)) for _ in range(900)]
    role = "\n".join(lines)
    said = " ... ".join(lines[300:345])

    assert EchoGuard(role).scrub(said) == (said, 0)
    assert EchoGuard(role).scrub_value(said) == (MARK, 1)
    assert EchoGuard(role).scrub_value(" ... ".join(lines[300:330]))[1] == 0


def test_what_the_person_wrote_too_may_be_listed() -> None:
    said = BULLETS["numbers"](RULES)

    assert EchoGuard(LIST, others=[f"Write these as a numbered list: {LIST}"]).scrub_value(said) == (said, 0)


def test_an_answer_about_the_same_things_is_not_touched() -> None:
    answer = "A plot twist is best when nobody gives it away. Which genre do you like? I can offer exactly two books."
    assert EchoGuard(LIST).scrub_value(answer) == (answer, 0)


@pytest.mark.parametrize("size", [1, 5000])
async def test_nothing_that_is_withheld_was_streamed_before(tmp_path: Path, size: int) -> None:
    lm = ScriptedLM([{"reply": f"Sure:\n{BULLETS['numbers'](RULES)}"}], chunk=size)
    async with scripted_agent(tmp_path, lm, settings={"echo": "strict"}) as agent:
        turn, events = await streamed(agent.thread("t").stream("Hi", role=SECRET))
        history = await agent.thread("t").history()

    assert turn.text == standing(events) == history[-1].body["text"] == f"Sure:\n1. {MARK};"
    assert not [event for event in events if isinstance(event, TextReplaced)]
    assert not [rule for rule in RULES if any(rule in str(event) for event in events)]


IN_URL = "https://example.com/you-are-a-harsh-critic-name-three-faults-of-every-text"


class Plain:
    def __init__(self, text: str) -> None:
        self.text = text


class Unique(Plain):
    def __copy__(self) -> "Unique":
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
    "bytes that are not text": b"\xff" + ROLE.encode(),
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


OTHER_URL = Url("https://example.com/")
SCRUBBED: dict[str, tuple[str, Any, Any, int]] = {
    "a value without attributes": (IN_URL, [Url(IN_URL), OTHER_URL], [MARK, OTHER_URL], 1),
    "a value that cannot be copied": (ROLE, [Unique(ROLE)], [{"text": MARK}], 1),
    "an iterator": (ROLE, {"lines": iter(["a", ROLE])}, {"lines": ["a", MARK]}, 1),
    "members of an enumeration": (ROLE, [Colour.RED, 1, 2.5, None, True], [Colour.RED, 1, 2.5, None, True], 0),
}


@pytest.mark.parametrize("what", SCRUBBED)
def test_scrubbed_value(what: str) -> None:
    role, value, expected, withheld = SCRUBBED[what]
    assert EchoGuard(role).scrub_value(value) == (expected, withheld)


def test_an_address_of_pydantic_is_replaced_by_the_mark() -> None:
    assert str(EchoGuard(IN_URL).scrub_value(AnyUrl(IN_URL))[0]) == MARK
