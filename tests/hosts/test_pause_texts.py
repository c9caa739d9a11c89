"""How a pause is shown to a person, and which answers are read out of what they type."""

import json
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, TypeAdapter

from worldagent.core.errors import InvalidArgument
from worldagent.core.pauses import (
    Answer,
    Approve,
    Happened,
    NotHappened,
    Pause,
    PersonAnswer,
    Reject,
    RunAgain,
)
from worldagent.hosts.service.pauses import printable
from worldagent.hosts.service.typed_answers import pause_text, read_answer

pytestmark = pytest.mark.requirement("H9")


class Size(Enum):
    SMALL, LARGE = "small", "large"


class Order(BaseModel):
    street: str = Field(description="where to", min_length=1)
    number: int = Field(ge=1)
    size: Size
    colour: Literal["red", "blue"] = "red"
    floor: int | None = None
    price: float = 0.5
    gift: bool = False
    note: str | None = None


class Sizes(BaseModel):
    street: str
    sizes: list[Size]


class Letters(BaseModel):
    code: str = Field(pattern=r"^\p{L}+$")  # a pattern that Python cannot read


def pause(kind: Any = "question", form: Any = None, **more: Any) -> Pause:
    if form is not None:
        more["schema"] = TypeAdapter(form).json_schema()
    function = "ask_person" if kind == "question" else "pay"
    return Pause(id="turn_1/pay:1", kind=kind, function=function, since=datetime.now(UTC), **more)


class Spaced(BaseModel):
    where: str = Field(alias="where to")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
FORMS = st.sampled_from([None, str, Order, Sizes, Letters, RootModel[list[int]], RootModel[int]])


@st.composite
def pauses(draw: st.DrawFn) -> Pause:
    kind = draw(st.sampled_from(["approval", "question", "uncertain"]))
    more: dict[str, Any] = {
        "problem": draw(st.none() | TEXTS),
        "expires": draw(st.none() | st.datetimes(datetime(1971, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))),
    }
    if kind == "approval":
        more |= {
            "risk": tuple(draw(st.lists(st.sampled_from(["read_only", "write", "network", "destructive"])))),
            "hash": "1f",
            **{name: draw(TEXTS) for name in ("reason", "caller")},
            "approvers": tuple(draw(st.lists(TEXTS, max_size=2))),
            "form": draw(FORMS),
        }
    if kind != "question":
        return pause(kind, arguments=draw(st.dictionaries(TEXTS, JSON, max_size=4)), **more)
    options = tuple(draw(st.lists(TEXTS.filter(str.strip), max_size=4)))
    form = str if options else draw(FORMS)
    return pause(kind, form, question=draw(TEXTS), options=options or None, **more)


WORDS = st.sampled_from(
    ["yes", "no", "edit", "always", "any", "1", "again", "happened", "street=", "number=1", '"', "{", "[", "\\u", "NaN"]
)
PAIRS = st.sampled_from(
    ["street=Elm", "number=1", "number=0", "size=large", "colour=blue", "gift=yes", "note=a b", "x=1"]
)
EDITS = st.lists(PAIRS, min_size=1, max_size=4).map(lambda pairs: f"edit {' '.join(pairs)}")
TYPED = st.text() | st.lists(WORDS, max_size=6).map(" ".join) | EDITS | JSON.map(json.dumps)

# --- what is shown ----------------------------------------------------------------------------------------------------


def test_an_approval_shows_its_risk_caller_reason_and_approvers() -> None:
    about: dict[str, Any] = {"caller": "critic", "reason": "the rule\n'x' asks", "approvers": ("ana", "lead-*")}
    asked = pause("approval", Order, arguments={"number": 1}, risk=("read_only", "destructive"), **about)
    assert pause_text(asked).splitlines() == [
        "approval of a call: pay",
        "  number: 1",
        "risk: read only, destructive",
        "called by: critic",
        "reason: the rule 'x' asks",
        "approvers: ana, lead-*",
        "answer: yes; no REASON; or edit FIELD=VALUE ...",
    ]


def test_a_question_shows_its_options_by_number_its_problem_and_its_end() -> None:
    asked = pause(
        question="Which one?\nTake your time.",
        options=("red", "light\nblue"),
        form=str,
        problem="it was green",
        expires=datetime.now(UTC) + timedelta(hours=1),
    )
    shown = pause_text(asked).splitlines()
    assert shown.pop(-2).startswith("open until 20")
    assert shown == [
        "question:",
        "  Which one?",
        "  Take your time.",
        "  1  red",
        "  2  light blue",
        "the last answer was not accepted: it was green",
        "answer: the number or the text of an option",
    ]


# What a line that is not indented begins with: at the first line, once each, and never in a pause of another kind.
_AFTER = ("the last answer was not accepted: ", ("open until ", "expired at "), "answer: ")
_ABOUT = ("risk: ", "called by: ", "reason: ", "approvers: ")
BEGINS: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "approval": ("approval of a call: ", *_ABOUT, *_AFTER),
    "question": ("question:", *_AFTER),
    "uncertain": ("uncertain call: ", "It was interrupted while it ran. ", *_AFTER),
}


@given(pauses())
def test_the_text_of_a_pause_cannot_steer_a_terminal_or_imitate_another_line(shown: Pause) -> None:
    text = pause_text(shown)
    assert printable(text) == text
    text.encode()
    begins, lines = BEGINS[shown.kind], text.split("\n")
    assert lines[0].startswith(begins[0])
    for begin in begins:
        assert sum(line.startswith(begin) for line in lines) <= 1, begin
    assert [line for line in lines if not any(line.startswith(begin) for begin in ("  ", *begins))] == []
    late = shown.expires is not None and shown.expires < datetime.now(UTC)
    assert lines[-1].startswith("expired at " if late else "answer: ")


# --- what is read -----------------------------------------------------------------------------------------------------


def approved(**arguments: Any) -> Approve:
    return Approve(arguments=arguments, hash="1f")


def answered(**fields: Any) -> Answer:
    return Answer(fields)


WHOLE = {"street": "Elm road 3", "number": 5, "size": "large", "floor": 2, "gift": True, "note": "a size=3"}
SEEN = pause("approval", Order, hash="1f", arguments={"street": "Elm road", "number": 3, "size": "small"})
LISTS = pause("approval", Sizes, hash="1f", arguments={"street": "x", "sizes": ["small"]})
SPACED, ERASING = pause("approval", Spaced), pause("approval", Order, risk=("write", "destructive"))
UNSURE, FORM, NESTED = pause("uncertain"), pause(question="Where to?", form=Order), pause(question="?", form=Sizes)


@pytest.mark.parametrize(
    ("shown", "said", "answer"),
    [
        *((SEEN, said, Approve(hash="1f")) for said in ("y", " YES\n", "approve")),
        *((SEEN, said, Reject(why)) for said, why in (("No.", ""), ("N too dear", "too dear"), ("no, dear", "dear"))),
        (SEEN, "Always", Approve(always="same", hash="1f")),
        (SEEN, "edit street=Ash 2 gift=yes", approved(street="Ash 2", number=3, size="small", gift=True)),
        (LISTS, 'edit sizes=["large"]', approved(street="x", sizes=["large"])),
        (SPACED, 'edit {"where to": "Elm"}', Approve(arguments={"where to": "Elm"}, hash="")),
        (UNSURE, 'Happened {"id": 3}', Happened({"id": 3})),
        (UNSURE, "not  happened", NotHappened()),
        (UNSURE, "again", RunAgain()),
        (FORM, 'street=Elm road 3 number=5\nsize=large floor=2 gift=yes note="a size=3"', Answer(WHOLE)),
        (FORM, "size=large number=1 street=x floor=null", answered(street="x", number=1, size="large", floor=None)),
        (NESTED, '{"street": "x", "sizes": ["small"]}', answered(street="x", sizes=["small"])),
    ],
)
def test_a_clear_answer_is_read(shown: Pause, said: str, answer: PersonAnswer) -> None:
    assert read_answer(shown, said) == answer


@pytest.mark.parametrize(
    ("shown", "said", "told"),
    [
        *(
            (SEEN, said, "neither a clear yes nor a clear no")
            for said in ("ok", "yes please", "no-brainer", "edited x=1")
        ),
        (ERASING, "always", "destructive"),
        (SEEN, "edit number=0", "number: 0 is less than the minimum of 1"),
        (SEEN, "edit nothing=1", "'nothing' is not a field of this form"),
        (SPACED, "edit where to=Elm", "given as JSON"),
        *((UNSURE, said, "") for said in ("yes", "happened paid", "happened NaN")),
        (FORM, "street=x number=1 number=2 size=small", "'number' is given twice"),
        (NESTED, '{"street": "x", "sizes": ["huge"]}', "'huge' is not one of"),
    ],
)
def test_an_unclear_or_invalid_answer_is_refused_with_the_reason(shown: Pause, said: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_answer(shown, said)
    assert told in str(caught.value)


@given(TYPED)
def test_nothing_but_an_explicit_yes_approves(typed: str) -> None:
    try:
        answer = read_answer(SEEN, typed)
    except InvalidArgument:
        return
    if isinstance(answer, Reject):
        return
    assert isinstance(answer, Approve)
    assert answer.hash == SEEN.hash, "it is for what was shown"
    whole = typed.strip()
    said = " ".join(whole.casefold().split())
    assert answer.always == {"always": "same", "always any": "any"}.get(said, False)
    if answer.arguments is None:
        assert said in ("y", "yes", "approve", "always", "always any")
        return
    word, edited = whole.split(maxsplit=1)
    assert word.casefold() == "edit"
    Order.model_validate(answer.arguments)
    if edited.startswith("{"):
        assert answer.arguments == json.loads(edited)
        return
    kept = {name: value for name, value in answer.arguments.items() if f"{name}=" not in edited}
    assert kept.items() <= SEEN.arguments.items()
    assert answer.arguments.keys() >= SEEN.arguments.keys()
