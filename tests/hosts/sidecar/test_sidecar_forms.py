"""Forms of MCP's elicitation, and `next`: what a pause asks for, and which call answers it (T4)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import ElicitRequestFormParams
from pydantic import BaseModel, Field, TypeAdapter

from support.sidecars import over_http
from worldagent.core.errors import AnswerInvalid
from worldagent.core.pauses import Answer, Approve, Happened, NotHappened, Pause, Reject, RunAgain
from worldagent.hosts.service.answers import answer_of, form_of, message_of, pause_record, read_answers
from worldagent.hosts.service.arguments import ThreadArguments
from worldagent.hosts.service.call import Call, Caller
from worldagent.hosts.service.next_steps import to_call

pytestmark = pytest.mark.requirement("T4")

PLAIN = {"string", "integer", "number", "boolean"}
KEPT = {"type", "title", "description", "enum", "minLength", "maxLength", "minimum", "maximum", "format", "default"}


def pause(kind: Any = "question", form: Any = None, **more: Any) -> Pause:
    if form is not None:
        more["schema"] = TypeAdapter(form).json_schema()
    return Pause(id="turn_1/pay:1", kind=kind, function="pay", since=datetime.now(UTC), hash="h", **more)


class Order(BaseModel):
    street: str = Field(description="where\x1b[2J to", min_length=1)
    number: int = Field(ge=1)
    size: Literal["small", "large"]
    colour: Literal["red", "blue"] = "red"
    floor: int | None = None
    note: str | None
    price: float = 0.5
    gift: bool = False


class Deep(BaseModel):
    street: str
    sizes: list[int]


class Loop(BaseModel):
    inner: "Loop | None" = None


def test_a_form_keeps_to_what_every_client_can_show() -> None:
    schema = form_of(pause(form=Order))
    ElicitRequestFormParams(message="", requested_schema=schema)
    fields = schema["properties"]
    assert schema["required"] == ["street", "number", "size"]  # what may be null may be left out
    assert all(set(field) <= KEPT and field["type"] in PLAIN for field in fields.values())
    assert fields["street"]["description"] == "where[2J to"
    assert (fields["size"]["enum"], fields["colour"]["default"]) == (["small", "large"], "red")
    assert (fields["number"]["minimum"], fields["floor"]["type"], fields["note"]["type"]) == (1, "integer", "string")


@pytest.mark.parametrize("form", [Deep, Loop, int | str])
def test_a_nested_form_becomes_a_text_of_json(form: Any) -> None:
    asked = pause(form=form)
    assert list(form_of(asked)["properties"]) == ["json"]
    assert answer_of(asked, {"json": "[1]"}) == Answer([1])
    for wrong in ("", "[1", "NaN", '"\\ud800"', "[" * 100_000):
        with pytest.raises(AnswerInvalid, match="json"):
            answer_of(asked, {"json": wrong})


def test_an_approval_can_be_for_the_turn_unless_it_is_destructive() -> None:
    asked = pause("approval", risk=("write",))
    assert answer_of(asked, {"decision": "approve"}) == Approve(hash="h")
    assert answer_of(asked, {"decision": "approve_always", "reason": None}) == Approve(always="same", hash="h")
    wide = {"decision": "approve_always_any", "reason": None}
    assert answer_of(asked, wide) == Approve(always="any", hash="h")
    assert answer_of(asked, {"decision": "reject", "reason": "no"}) == Reject("no")
    destructive = pause("approval", risk=("destructive",))
    assert form_of(destructive)["properties"]["decision"]["enum"] == ["approve", "reject"]
    with pytest.raises(AnswerInvalid, match="decision"):
        answer_of(destructive, {"decision": "approve_always"})
    with pytest.raises(AnswerInvalid, match="destructive"):
        read_answers({asked.id: {"approve": {"always": True}}}, [destructive], account=None)
    assert (pause_record(destructive)["always"], pause_record(asked)["always"]) == (False, True)


@pytest.mark.parametrize(
    ("content", "form", "answer"),
    [
        (
            {"outcome": "happened", "result": '{"paid": 3}'},
            {"happened": {"result": {"paid": 3}}},
            Happened({"paid": 3}),
        ),
        ({"outcome": "not_happened", "result": " "}, {"not_happened": {}}, NotHappened()),
        ({"outcome": "run_again"}, {"run_again": {}}, RunAgain()),
    ],
)
def test_an_interrupted_effect_is_answered_in_a_form_or_as_json(content: Any, form: Any, answer: Any) -> None:
    asked = pause("uncertain")
    assert answer_of(asked, content) == answer
    assert read_answers({asked.id: form}, [asked], account=None) == {asked.id: answer}
    assert list(pause_record(asked)["answers"]) == ["happened", "not_happened", "run_again"]


CALL = Call(given=ThreadArguments(thread="t1"), caller=Caller(workspace="w", account="a"))


def test_an_expired_pause_is_not_asked_for_and_is_marked() -> None:
    late = pause("approval", expires=datetime(2020, 1, 1, tzinfo=UTC))
    assert (pause_record(late)["expired"], pause_record(late)["answers"]) == (True, {})
    [step] = to_call(CALL, "paused", "turn_1", [late], ids={"thread": "t1"})
    assert step.arguments == {"thread": "t1", "answers": {}}
    assert "no pause can be answered any more" in step.why


@pytest.mark.parametrize(("status", "tool"), [("cut_off", "resume"), ("failed", "resume"), ("running", "events")])
def test_a_turn_that_can_continue_says_how(status: str, tool: str) -> None:
    assert to_call(CALL, "abandoned", "turn_1", []) == []
    [step] = to_call(CALL, status, "turn_1", [], seq=7)
    wanted = {"workspace": "w", "account": "a", "thread": "t1"}
    if tool == "events":
        wanted = {"workspace": "w", "account": "a", "turn_id": "turn_1", "after": 7}  # type: ignore[dict-item]  # a number
    assert (step.tool, step.arguments) == (tool, wanted)


SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]),
            "enum": st.lists(st.none() | st.booleans() | st.integers() | st.text(), min_size=1, max_size=3),
            "default": st.none() | st.integers() | st.text(),
            "minLength": st.integers(0, 9),
            "$ref": st.sampled_from(["#/$defs/A", "#/$defs/none"]),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array"]),
            "properties": st.dictionaries(st.text(max_size=5), inner, max_size=3),
            "required": st.lists(st.text(max_size=5), max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
        },
    ),
    max_leaves=12,
)


@given(schema=SCHEMAS, shared=SCHEMAS)
def test_every_schema_becomes_a_form(schema: Any, shared: Any) -> None:
    if not isinstance(schema, dict):
        schema = {"anyOf": [schema]}
    asked = pause(schema={**schema, "$defs": {"A": shared}}, question="\x1b[31m?")
    form = form_of(asked)
    json.dumps(form)
    assert all(set(field) <= KEPT and field["type"] in PLAIN for field in form["properties"].values())
    assert set(form["required"]) <= form["properties"].keys()
    assert "\x1b" not in message_of(asked, "\x1b")


ROLE = {"content": "Be brief, and speak of the tide."}
SKILL = {"prompt": "Buy what is asked for.", "shape": "buy", "params": {"what": "hat"}}
# Of `buy`, whose code asks no model, a role reaches nothing; so none is needed again.
AGAIN: dict[str, Any] = {"role": ROLE, "skill": SKILL}
STARTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "plain": ("converse", {"text": "do=buy what=hat"}, ["answers"]),
    "role": ("converse", {"text": "do=buy what=hat", "role": ROLE}, ["answers", "role"]),
    "task": ("task", {"shape": "buy", "role": ROLE}, ["answers"]),
    "skill": ("run_skill", {"skill": SKILL}, ["answers", "skill"]),
    "skill and role": ("run_skill", {"skill": SKILL, "role": ROLE}, ["answers", "skill"]),
}


async def test_next_of_a_paused_turn_works_with_what_it_needs(tmp_path: Path) -> None:
    async with over_http(tmp_path / "home") as sidecar, sidecar.client() as client:
        for thread, (tool, arguments, needs) in STARTS.items():
            async with client.call(tool, {"thread": thread, "account": "ana", **arguments}) as call:
                paused = await call.answer()
            assert call.result is not None
            [block] = call.result["content"]
            assert json.loads(block["text"]) == paused  # a client that shows text alone can answer, too
            [pause] = paused["turn"]["pauses"]
            [step] = paused["next"]
            assert sorted(step["needs"]) == needs
            assert [name for name in needs[1:] if name not in step["why"]] == []
            assert (await client.ask("pauses", thread=thread, account="ana"))["next"] == [step]
            given = AGAIN | {"answers": {pause["id"]: {"approve": {}}}}
            done = await client.ask(step["tool"], **step["arguments"] | {name: given[name] for name in step["needs"]})
            assert (done["turn"]["status"], done["next"]) == ("done", [])
        assert ROLE["content"] not in str(client.heard)
