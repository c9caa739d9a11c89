"""Answers that a service holds to a JSON Schema: which services are asked, with which schemas, and what is read."""

import json
import logging
from pathlib import Path
from typing import Any, Literal

import dspy
import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest
from pydantic import BaseModel, Field, TypeAdapter

from support.agents import scripted_agent, streamed
from support.services import FORMATS, Format, Said, agent_at, named, price, schema_of, service
from worldagent import Role
from worldagent.core import events as ev
from worldagent.graphs.shapes import signature_worker
from worldagent.signatures import Converse
from worldagent.signatures.structured import Unenforceable, enforceable, without_nulls

pytestmark = pytest.mark.requirement("T12")

ALL = pytest.mark.parametrize("wanted", FORMATS)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.setenv(name, "key")


class Ship(BaseModel):
    name: str = Field(min_length=1, description="as painted on it")
    masts: int = 2
    flag: str | None = None


class Crew(BaseModel):
    captain: str
    mates: dict[str, int]  # no service holds an answer to keys that it does not know


class Moody(Converse):
    mood: Literal["glad", "sour"] = dspy.OutputField()


VELA = {"name": "Vela", "masts": None, "flag": None}
ASKED = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "as painted on it (minLength: 1)"},
        "masts": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "flag": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}


def answer(**fields: Any) -> Said:
    return Said(json.dumps(fields))


PLAIN = {"name": "Vela"}


def markers(**fields: Any) -> Said:
    """An answer in the chat format."""
    parts = [f"[[ ## {name} ## ]]\n{json.dumps(value)}" for name, value in fields.items()]
    return Said("\n\n".join([*parts, "[[ ## completed ## ]]"]))


@ALL
async def test_an_answer_with_a_type_is_held_to_its_schema_and_a_text_is_not(wanted: Format, tmp_path: Path) -> None:
    with service(answer(reply=VELA), Said("Ahoy."), answer(reply={**VELA, "masts": 3})) as stub:
        async with agent_at(tmp_path, stub, wanted, tools=[]) as agent:
            thread = agent.thread("t")
            assert (await thread.converse("Which?", output=Ship)).result == Ship(name="Vela")
            assert (await thread.converse("Ahoy?")).text == "Ahoy."
            turn, events = await streamed(thread.stream("Which?", output=Ship))
            assert turn.result == Ship(name="Vela", masts=3)
    assert [event.text for event in events if isinstance(event, ev.TextDelta)] == [turn.text]
    first, second, third = map(schema_of, stub.requests)
    assert first == third
    assert second is None
    asked = first["properties"].pop("reply")
    assert first == {"type": "object", "properties": {}, "required": ["reply"], "additionalProperties": False}
    assert asked.pop("additionalProperties") is False
    assert asked.pop("required") == list(asked["properties"]) == list(VELA)  # in the order in which they are declared
    assert asked == ASKED


@ALL
async def test_the_text_of_an_answer_with_further_fields_is_streamed(wanted: Format, tmp_path: Path) -> None:
    with service(answer(reply='Rain, "again".\nSit!', mood="sour")) as stub:
        async with agent_at(tmp_path, stub, wanted, tools=[], converse=Moody) as agent:
            turn, events = await streamed(agent.thread("t").stream("Weather?", role=Role("gruff", "Be gruff.")))
    assert (turn.text, turn.outputs) == ('Rain, "again".\nSit!', {"mood": "sour"})
    assert "".join(event.text for event in events if isinstance(event, ev.TextDelta)) == turn.text
    assert not [event for event in events if isinstance(event, ev.TextReplaced)]
    assert schema_of(stub.requests[0])["properties"] == {
        "reply": {"type": "string"},
        "mood": {"type": "string", "enum": ["glad", "sour"]},
    }
    assert "gruff" not in json.dumps(schema_of(stub.requests[0]))


@ALL
async def test_a_service_that_refuses_schemas_is_asked_as_before_and_not_again(
    wanted: Format, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with service(*(markers(reply=PLAIN) for _ in range(2))) as stub:
        stub.refuses = schema_of
        with caplog.at_level(logging.WARNING, "worldagent.models"):
            async with agent_at(tmp_path, stub, wanted, tools=[]) as agent:
                for name in ("t", "u"):
                    assert (await agent.thread(name).converse("Which?", output=Ship)).result == Ship(name="Vela")
    assert [schema_of(body) is not None for body in stub.requests] == [True, False, False]
    [record] = caplog.records
    assert "refused to hold an answer to a schema (HTTP 400)" in record.getMessage()
    assert "model_schemas" in record.getMessage()


async def test_a_service_that_took_one_schema_is_spared_only_what_it_refuses(tmp_path: Path) -> None:
    with service(answer(reply=VELA), markers(reply=3), markers(reply=4), answer(reply=VELA)) as stub:
        stub.refuses = lambda body: (
            (schema_of(body) or {}).get("properties", {}).get("reply", {}).get("type") == "integer"
        )
        async with agent_at(tmp_path, stub, "chat", tools=[]) as agent:
            results = [
                (await agent.thread("t").converse("Go.", output=output)).result for output in (Ship, int, int, Ship)
            ]
    assert results == [Ship(name="Vela"), 3, 4, Ship(name="Vela")]
    assert [schema_of(body) is not None for body in stub.requests] == [True, True, False, False, True]


@pytest.mark.parametrize(
    ("lm", "schemas"),
    [
        ("openai/gpt-4o", [True, True]),
        ("anthropic/claude-sonnet-4-5", [True, True]),
        ("gemini/gemini-2.5-flash", [True, False, False]),  # which refuses it beside tools
        ("gemini/gemini-3-pro", [True, True]),
        ("deepseek/deepseek-chat", [False, False]),  # which has no schemas
    ],
)
async def test_beside_tools_only_services_that_have_both_are_asked(
    lm: str, schemas: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = Said("", (("price", {"item": "rope"}),))
    with service(called, answer(reply=VELA) if schemas[-1] else Said(json.dumps(PLAIN))) as stub:
        stub.refuses = lambda body: "2.5" in lm and named(body) and schema_of(body)
        stub.stand_in(monkeypatch)
        async with scripted_agent(tmp_path, lm, tools=[price]) as agent:
            assert (await agent.thread("t").converse("Which?", output=Ship)).result == Ship(name="Vela")
    assert all(map(named, stub.requests))
    assert [schema_of(body) is not None for body in stub.requests] == schemas


@pytest.mark.parametrize(
    ("given", "output", "said"),
    [
        ({}, Crew, {"captain": "Ana", "mates": {"Bo": 1}}),
        ({"settings": {"model_schemas": "off"}}, Ship, PLAIN),
        ({"tools": [price]}, Ship, PLAIN),  # its server could keep the model from calling them
    ],
    ids=["any keys", "switched off", "own server with tools"],
)
async def test_what_no_service_can_hold_an_answer_to_is_asked_as_before(
    given: dict[str, Any], output: Any, said: Any, tmp_path: Path
) -> None:
    with service(markers(reply=said)) as stub:
        async with agent_at(tmp_path, stub, "chat", **{"tools": [], **given}) as agent:
            assert isinstance((await agent.thread("t").converse("Which?", output=output)).result, output)
    assert [schema_of(body) for body in stub.requests] == [None]


async def test_a_worker_with_a_signature_of_its_own_is_held_to_it(tmp_path: Path) -> None:
    class Judge(dspy.Signature):
        """Judge a ship."""

        ship: str = dspy.InputField()
        fit: bool = dspy.OutputField()
        why: str = dspy.OutputField()

    leaks, swims = {"fit": False, "why": "It leaks."}, {"fit": True, "why": "It swims."}
    with service(answer(result=leaks), markers(result=swims)) as stub:
        async with agent_at(tmp_path, stub, "chat", tools=[], workers=[signature_worker(Judge)]) as agent:
            for expected in (leaks, swims):  # a server can take a schema and ignore it
                assert (await agent.call("judge", {"ship": "Vela"})).model_dump() == expected
    assert all(map(schema_of, stub.requests))


class Leaf(BaseModel):
    word: str


class Tree(BaseModel):
    more: "list[Tree]"


KINDS: list[tuple[Any, Any, Any]] = [
    (list[Ship], [VELA], [{"name": "Vela", "flag": None}]),
    (Ship | Leaf, {"word": "x"}, {"word": "x"}),
    (Ship | None, None, None),
    (str | list[bool], [True], [True]),
    (Literal["a", 1, None], 1, 1),
    ({"type": ["string", "null"]}, None, None),
    ({"const": "x"}, "x", "x"),
    ({"oneOf": [{"type": "integer"}, {"enum": [True]}]}, 3, 3),
    ({"properties": {"a": {"type": "null"}, "b": {"type": "number"}}}, {"a": None, "b": None}, {"a": None}),
]


@pytest.mark.parametrize(("kind", "given", "read"), KINDS, ids=[str(each[0])[:40] for each in KINDS])
def test_a_schema_for_services_allows_what_the_schema_itself_does(kind: Any, given: Any, read: Any) -> None:
    schema = kind if isinstance(kind, dict) else TypeAdapter(kind).json_schema()
    asked = enforceable(schema)
    jsonschema.validate(given, asked)
    assert without_nulls(given, schema) == read
    jsonschema.validate(read, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "object"},
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"type": "string", "not": {"const": "x"}},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/missing"},
        {"enum": [{}]},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
        Tree.model_json_schema(),
        {"type": "object", "properties": {f"p{place}": {"type": "string"} for place in range(400)}},
    ],
)
def test_a_schema_that_no_service_takes_is_not_written(schema: Any) -> None:
    with pytest.raises(Unenforceable):
        enforceable(schema)
