"""Answers that a service holds to a JSON Schema: which services are asked, with which schemas, and what is read."""

import json
import logging
import random
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import dspy
import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest
from pydantic import BaseModel, Field, TypeAdapter, create_model

from support.agents import scripted_agent, streamed
from support.services import FORMATS, HOW, ROLE, Format, Said, agent_at, named, price, schema_of, service
from worldagent import Role
from worldagent.core import events as ev
from worldagent.core.errors import ModelRefused
from worldagent.graphs.shapes import signature_worker
from worldagent.signatures import Converse
from worldagent.signatures.structured import LEFT_OUT, Unenforceable, enforceable, without_nulls

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
        "masts": {"anyOf": [{"type": "integer"}, LEFT_OUT]},
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
    with service(*[answer(reply='Rain, "again".\nSit!', mood="sour")] * 2) as stub:
        async with agent_at(tmp_path, stub, wanted, tools=[], converse=Moody) as agent:
            turn, events = await streamed(agent.thread("t").stream("Weather?", role=Role("gruff", "Be gruff.")))
            await agent.thread("t").converse("Weather?")
    assert (turn.text, turn.outputs) == ('Rain, "again".\nSit!', {"mood": "sour"})
    assert "".join(event.text for event in events if isinstance(event, ev.TextDelta)) == turn.text
    assert not [event for event in events if isinstance(event, ev.TextReplaced)]
    assert schema_of(stub.requests[0])["properties"] == {
        "reply": {"type": "string"},
        "mood": {"type": "string", "enum": ["glad", "sour"]},
    }
    assert json.dumps(schema_of(stub.requests[0])) == json.dumps(schema_of(stub.requests[1]))


@ALL
async def test_a_role_in_a_field_of_an_answer_is_withheld(wanted: Format, tmp_path: Path) -> None:
    with service(answer(reply={**VELA, "name": f"I was told: {HOW}"})) as stub:
        async with agent_at(tmp_path, stub, wanted, tools=[]) as agent:
            turn, events = await streamed(agent.thread("t").stream("Which?", output=Ship, role=ROLE))
    assert schema_of(stub.requests[0])
    assert HOW not in turn.text
    assert HOW not in "".join(event.text for event in events if isinstance(event, ev.TextDelta))
    assert turn.result.name.startswith("I was told: ")


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


@pytest.mark.parametrize(
    ("refused", "asked"),
    [
        ({1}, [True, False, False, True, True, True, True, True]),
        ({1, 3}, [True, False, False, True, True, False, True, True, True]),
        ({1, 2, 3, 4, 5, 6}, [True, False, False, True, False, True, False, False, False, False]),  # three are enough
    ],
)
async def test_a_schema_that_is_refused_says_nothing_of_others_until_a_few_are(
    refused: set[int], asked: list[bool], tmp_path: Path
) -> None:
    with service() as stub:
        stub.refuses = lambda body: any(f"maxLength: {size}" in json.dumps(schema_of(body)) for size in refused)
        stub.reply = lambda body: (answer if schema_of(body) else markers)(reply={"name": "V"})
        async with agent_at(tmp_path, stub, "chat", tools=[]) as agent:
            for size in (1, 1, 2, 3, 4, 5, 6):
                output = create_model("Named", name=(str, Field(max_length=size)))
                assert (await agent.thread("t").converse("Go.", output=output)).result == output(name="V")
    assert [schema_of(body) is not None for body in stub.requests] == asked


@pytest.mark.parametrize(
    ("said", "code"),
    [
        # OpenAI, Anthropic, Gemini, Groq
        (
            "Invalid schema for response_format 'answer': 11 levels of nesting exceeds limit of 10.",
            "invalid_json_schema",
        ),
        (
            "Schemas contains too many parameters with union types (19 parameters with type arrays or anyOf). This "
            "causes exponential compilation cost. Reduce the number of nullable or union-typed parameters (limit: 16 "
            "parameters with unions).",
            None,
        ),
        (
            "The compiled grammar is too large, which would cause performance issues. Simplify your tool schemas or "
            "reduce the number of strict tools.",
            None,
        ),
        ("The specified schema produces a constraint that has too many states for serving.", None),
        ("This model does not support response format `json_schema`. See supported models.", None),
    ],
)
async def test_what_services_say_of_a_schema_that_they_refuse_is_understood(
    said: str, code: str | None, tmp_path: Path
) -> None:
    with service(markers(reply=PLAIN)) as stub:
        stub.refuses, stub.refusal = schema_of, (400, said, code)
        async with agent_at(tmp_path, stub, "chat", tools=[]) as agent:
            assert (await agent.thread("t").converse("Which?", output=Ship)).result == Ship(name="Vela")


@pytest.mark.parametrize("said", ["Could not process image", "This request violates our content policy"])
async def test_a_request_that_is_refused_for_its_content_says_nothing_of_schemas(said: str, tmp_path: Path) -> None:
    with service(answer(reply=VELA)) as stub:
        stub.refuses, stub.refusal = (lambda body: True), (400, said, None)
        async with agent_at(tmp_path, stub, "chat", tools=[]) as agent:
            with pytest.raises(ModelRefused):
                await agent.thread("t").converse("Which?", output=Ship)
            stub.refuses, before = (lambda body: False), len(stub.requests)
            assert (await agent.thread("u").converse("Which?", output=Ship)).result == Ship(name="Vela")
    assert [schema_of(body) is not None for body in stub.requests[before:]] == [True]


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


@pytest.mark.parametrize(
    "around", ["{}", "```json\n{}\n```", "Here it is:\n```\n{}\n```\nShall I go on?", "\ufeff{}<|im_end|>"]
)
async def test_the_object_is_read_whatever_a_server_puts_around_it(around: str, tmp_path: Path) -> None:
    said = json.dumps({"reply": "Rain.", "mood": "sour", "more": None})
    with service(Said(around.replace("{}", said))) as stub:
        async with agent_at(tmp_path, stub, "chat", tools=[], converse=Moody) as agent:
            turn, events = await streamed(agent.thread("t").stream("Weather?"))
    assert (turn.text, turn.outputs) == ("Rain.", {"mood": "sour"})
    assert "".join(event.text for event in events if isinstance(event, ev.TextDelta)) == turn.text
    assert not [event for event in events if isinstance(event, ev.TextReplaced)]


async def test_a_text_that_is_no_text_is_asked_for_again(tmp_path: Path) -> None:
    with service(answer(reply={"weather": "rain"}, mood="sour"), answer(reply="Rain.", mood="sour")) as stub:
        async with agent_at(tmp_path, stub, "chat", tools=[], converse=Moody) as agent:
            assert (await agent.thread("t").converse("Weather?")).text == "Rain."


async def test_a_worker_with_a_signature_of_its_own_is_held_to_it(tmp_path: Path) -> None:
    class Judge(dspy.Signature):
        """Judge a ship."""

        ship: str = dspy.InputField()
        fit: bool = dspy.OutputField()
        why: str = dspy.OutputField()
        masts: int = dspy.OutputField(default=2)
        flag: str | None = dspy.OutputField(default="none")

    leaks, swims = {"fit": False, "why": "It leaks."}, {"fit": True, "why": "It swims."}
    with service(answer(result={**leaks, "masts": None, "flag": None}), markers(result=swims)) as stub:
        async with agent_at(tmp_path, stub, "chat", tools=[], workers=[signature_worker(Judge)]) as agent:
            # a server can take a schema and ignore it
            for expected in ({**leaks, "masts": 2, "flag": None}, {**swims, "masts": 2, "flag": "none"}):
                assert (await agent.call("judge", {"ship": "Vela"})).model_dump() == expected
    assert all(map(schema_of, stub.requests))


class Leaf(BaseModel):
    word: str


class Found(BaseModel):
    kind: Literal["found"]
    at: int = 0


class Lost(BaseModel):
    kind: Literal["lost"]
    at: int | None


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
    (Found | Lost, {"kind": "found", "at": None}, {"kind": "found"}),
    (Found | Lost, {"kind": "lost", "at": None}, {"kind": "lost", "at": None}),
    (list[Found] | list[Lost], [{"kind": "lost", "at": None}], [{"kind": "lost", "at": None}]),
    ({"properties": {"a": {"type": "string"}}, "example": {"a": "x"}, "x-order": 1}, {"a": None}, {}),
    ({"type": "number", "enum": [1, 2.5]}, 1, 1),
]


@pytest.mark.parametrize(("kind", "given", "read"), KINDS, ids=[str(each[0])[:40] for each in KINDS])
def test_a_schema_for_services_allows_what_the_schema_itself_does(kind: Any, given: Any, read: Any) -> None:
    schema = kind if isinstance(kind, dict) else TypeAdapter(kind).json_schema()
    asked = enforceable(schema)
    jsonschema.validate(given, asked)
    assert without_nulls(given, asked) == read
    jsonschema.validate(read, schema)


_MANY = {"type": "object", "properties": {f"p{place}": {"$ref": "#/$defs/a"} for place in range(100)}}
_LONG = {"type": "string", "description": "x" * 200}
_TWICE = {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(40)}


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
        # no answer would fit the schema itself
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"type": "null"}}}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]},
        {"type": "string", "enum": ["a", 1]},
        {"type": "string", "anyOf": [{"type": "integer"}, {"type": "string"}]},
        # too large, though not where they are written
        *({**_MANY, "$defs": {"a": each}} for each in ({"enum": list(range(40))}, _LONG)),
        {"$ref": "#/$defs/d0", "$defs": {**_TWICE, "d40": {"type": "string"}}},
        {"type": "object", "properties": {f"p{place}": {"type": "string"} for place in range(1200)}},
        {"enum": list(range(1200))},
        {"type": "string", "pattern": "x" * 20_000},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_schema_that_no_service_takes_is_not_written(schema: Any) -> None:
    began = time.thread_time()
    with pytest.raises(Unenforceable):
        enforceable(schema)
    assert time.thread_time() - began < 0.05


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"anyOf": [{"const": place} for place in range(400)]}, "x"),
        ({"properties": {f"p{place}": {"type": "string"} for place in range(400)}}, {}),
    ],
    ids=["choices", "properties"],
)
def test_reading_takes_a_limited_time_whatever_the_schema_and_the_answer(items: Any, value: Any) -> None:
    asked = enforceable({"type": "array", "items": items})
    given = [value] * 4000
    began = time.thread_time()
    assert without_nulls(given, asked) == given
    assert time.thread_time() - began < 0.05


# --- what services document -------------------------------------------------------------------------------------------

_COMMON = {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "description"}
_REFERENCES = {"$ref", "$defs"}
TAKEN = {
    "openai": _COMMON | _REFERENCES | {"const", "pattern", "format", "minimum", "maximum", "multipleOf", "maxItems"},
    "anthropic": _COMMON | _REFERENCES | {"const", "allOf", "default", "title", "format", "definitions"},
    "gemini": _COMMON | _REFERENCES | {"oneOf", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "format"},
    "cerebras": _COMMON | _REFERENCES,
    "xai": _COMMON | _REFERENCES | {"oneOf", "format", "minimum", "maximum"},
    "llama.cpp": _COMMON | _REFERENCES | {"oneOf", "allOf", "const", "prefixItems", "minItems", "maxItems", "pattern"},
}
"""The keywords that each service documents. All want closed objects with all properties required, and one type at a
time; the levels are those of OpenAI."""


def _assert_taken(asked: Any, level: int = 2) -> None:
    assert level <= 10
    assert all(asked.keys() <= taken for taken in TAKEN.values())
    for part in asked.get("anyOf", ()):
        _assert_taken(part, level)
    if "anyOf" in asked:
        assert asked.keys() <= {"anyOf", "description"}
        return
    assert asked["type"] in {"string", "integer", "number", "boolean", "null", "array", "object"}
    for value in asked.get("enum", ()):
        jsonschema.validate(value, {"type": asked["type"]})
    if asked["type"] == "array":
        _assert_taken(asked["items"], level + 1)
    if asked["type"] == "object":
        assert asked["additionalProperties"] is False
        assert asked["required"] == list(asked["properties"])
        for part in asked["properties"].values():
            _assert_taken(part, level + 1)


def _schema(chance: random.Random, defs: dict[str, Any], level: int = 0) -> Any:
    """A schema as programs and people write them."""
    again = partial(_schema, chance, defs, level + 1)

    def plain() -> Any:
        kind = chance.choice(["string", "integer", "number", "boolean", "null"])
        return chance.choice(
            [
                {"type": kind},
                {"type": "string", "format": "date", "maxLength": 30, "title": "T"},
                {"const": chance.choice(["x", 1, True, None])},
                {"enum": chance.sample(["x", "y", 1, 2.5, True, None], 3), "default": "x"},
                {"type": [kind, "null"], "description": "about it"},
                {"type": "string", "enum": chance.choice([["x"], ["x", 1], ["x", None]])},
            ]
        )

    def record() -> Any:
        names = chance.sample("abc", chance.randint(1, 3))
        needed = [name for name in names if chance.random() < 0.5]
        made = {"type": "object", "properties": {name: again() for name in names}, "required": needed}
        return made | chance.choice([{}, {"additionalProperties": False}])

    def tagged() -> Any:
        made = record()
        made["properties"]["kind"] = {"const": chance.choice("xyz")}
        return {**made, "required": [*made["required"], "kind"]}

    def reference() -> Any:
        name = chance.choice("DEF")
        if name not in defs:
            defs[name] = {}
            defs[name] = again()
        return {"$ref": f"#/$defs/{name}"} | chance.choice([{}, {}, {"description": "d"}, {"required": ["a"]}])

    def union() -> Any:
        made = {"anyOf": [again() for _ in range(chance.randint(1, 3))]}
        return made | chance.choice([{}, {}, {}, {"type": "object"}, {"properties": {"a": {"type": "string"}}}])

    some: list[Any] = [record, record, reference, union, lambda: {"type": "array", "items": again()}]
    some += [lambda: {"anyOf": [tagged(), tagged()]}, lambda: {"anyOf": [{"type": "array", "items": tagged()}] * 2}]
    some += [lambda: {**record(), "type": ["object", "null"]}, lambda: {"allOf": [again()], "title": "T"}]
    return plain() if level > 3 or chance.random() < 0.35 else chance.choice(some)()


def _value(chance: random.Random, asked: Any) -> Any:
    if "anyOf" in asked:
        return _value(chance, chance.choice(asked["anyOf"]))
    if "enum" in asked:
        return chance.choice(asked["enum"])
    match asked["type"]:
        case "object":
            return {name: _value(chance, part) for name, part in asked["properties"].items()}
        case "array":
            return [_value(chance, asked["items"]) for _ in range(chance.randint(0, 2))]
        case kind:
            return {"string": "x", "integer": 7, "number": 2.5, "boolean": True, "null": None}[kind]


def test_random_schemas_are_written_as_all_services_take_them_and_answers_fit_the_original() -> None:
    written = 0
    for seed in range(400):
        chance, defs = random.Random(seed), dict[str, Any]()
        schema = {**_schema(chance, defs), "$defs": defs}
        try:
            asked = enforceable(schema)
        except Unenforceable:
            continue
        written += 1
        _assert_taken(asked)
        fits = jsonschema.Draft202012Validator(schema)
        for _ in range(3):
            given = _value(chance, asked)
            read = without_nulls(given, asked)
            assert fits.is_valid(given if read is LEFT_OUT else read), (seed, given, read)
    assert written > 200
