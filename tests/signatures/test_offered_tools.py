"""Tools reach a service as it takes them; one that it refuses is left out and named, and the others stay native."""

import contextlib
import itertools
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.raw_service import FORMS, Answer, Raw, RawService, plain, raw_service, whole
from support.raw_service import ask as raw_ask
from support.services import named
from worldagent.core.errors import ModelRefused, OutputInvalid
from worldagent.signatures import ModelOptions, Offer, OfferedTools
from worldagent.signatures.calling import TOOLS, ToolsOfStep

pytestmark = pytest.mark.requirement("T11")

ALL = pytest.mark.parametrize("form", FORMS)
ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}


NUMBERS = itertools.count()


@contextlib.asynccontextmanager
async def serving(*answers: Answer) -> AsyncGenerator[RawService]:
    """A service at an address of its own: what is known of a service is kept by its address."""
    async with raw_service(*answers) as service:
        service.url += f"/{next(NUMBERS)}"
        yield service


def tools(*names: str, **schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Tools with these names, and with these schemas of their own."""
    params = {**dict.fromkeys(names, ITEM), **schemas}
    return OfferedTools.of([Offer(name=name, description="", params=schema) for name, schema in params.items()]).inputs


async def ask(form: str, service: RawService, offered: Mapping[str, Any], **options: Any) -> str:
    """Ask a model of the service with tools, as each turn does."""
    answer = await raw_ask(service, form, offered, options=ModelOptions(attempts=1, **options))
    return str(answer.fields["reply"])


def schemas(body: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas of a request's tools, by their names."""
    found: dict[str, Any] = {}
    for each in body["tools"]:
        for tool in each.get("functionDeclarations", [each.get("function", each)]):
            place = next(key for key in ("parametersJsonSchema", "input_schema", "parameters") if key in tool)
            found[tool["name"]] = tool[place]
    return found


@ALL
async def test_a_schema_is_sent_in_the_form_that_services_take(form: str) -> None:
    hat = {"type": "object", "properties": {"item": {"type": "string"}, "size": {"type": "number"}}}
    declared: dict[str, Mapping[str, Any]] = {
        "union": {
            "anyOf": [{**hat, "required": ["item"]}, {"$ref": "#/definitions/Coat"}],
            "definitions": {"Coat": ITEM},
        },
        "referring": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/In",
            "definitions": {"In": ITEM},
        },
        "old": {
            "type": "object",
            "properties": {
                "pair": {
                    "type": "array",
                    "items": [{"type": "string"}, {"$ref": "#/definitions/Price", "description": "d"}],
                },
                "list": {"type": ["array", "null"]},
                "any": True,
                "items": {"type": "array", "items": {"type": "string"}},
                "inner": {"definitions": {"In": ITEM}, "$ref": "#/properties/inner/definitions/In"},
            },
            "required": ["pair", "undefined"],
            "definitions": {"Price": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
        },
        "usual": ITEM,
    }
    async with serving(plain(form, "Done.")) as service:
        assert await ask(form, service, tools(**declared)) == "Done."
        found = schemas(service.requests[0])
        if form == "responses":
            assert {each["strict"] for each in service.requests[0]["tools"]} == {False}
    about = {} if form == "gemini" else {"description": "d"}
    inner = {} if form == "gemini" else {"definitions": {"In": ITEM}}
    union = {"item": {"type": "string"}, "size": {"type": "number"}}
    assert found == {
        "union": {"$defs": {"Coat": ITEM}, "type": "object", "properties": union},
        "referring": {"$defs": {"In": ITEM}, **ITEM},
        "old": {
            "type": "object",
            "properties": {
                "pair": {
                    "type": "array",
                    "prefixItems": [{"type": "string"}, {"$ref": "#/$defs/Price", **about}],
                    "items": {},
                },
                "list": {"type": ["array", "null"], "items": {}},
                "any": {},
                "items": {"type": "array", "items": {"type": "string"}},
                "inner": {**inner, "$ref": "#/properties/inner/definitions/In"},
            },
            "required": ["pair"],
            "$defs": {"Price": {"type": "number", "exclusiveMinimum": 0}},
        },
        "usual": ITEM,
    }


@given(st.lists(st.text("ab._-", min_size=1, max_size=70), min_size=1, max_size=30, unique=True))
@example(["a.b", "a_b", "a_b_2", "a.b_2", "x" * 70, "x" * 71, "x" * 60 + ".y.z.0", "x" * 60 + "_y_z_0"])
@example([f"{'x.' * 32}{number}" for number in range(30)])
def test_names_fit_every_service_and_lead_back(names: list[str]) -> None:
    offered = OfferedTools.of([Offer(name=name, description="", params=ITEM) for name in names])
    wire = [each["function"]["name"] for each in offered.inputs[TOOLS]]
    assert [offered.names[each] for each in wire] == names
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each) for each in wire)


WORDS: dict[str, Any] = {
    # https://github.com/streamnative/streamnative-mcp-server/issues/26
    "openai": "Invalid schema for function 'bad': In context=('properties', 'x'), array schema missing items.",
    # https://github.com/anthropics/claude-code/issues/4668
    "anthropic": "tools.1.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
    # https://github.com/cline/cline/issues/7926
    "gemini": "* GenerateContentRequest.tools[0].function_declarations[1].parameters.properties[x]: missing field.",
    # https://github.com/zed-industries/zed/issues/44875
    "gemini's names": "Invalid JSON payload received. Unknown name \"const\" at 'tools[0].function_declarations[1].x'",
    # https://github.com/farion1231/cc-switch/issues/5490
    "deepseek": "Invalid schema for function 'bad': schema must be a JSON Schema of 'type: \"object\"'.",
    # https://github.com/BerriAI/litellm/issues/18442
    "vertex": "Unable to submit request because `bad` functionDeclaration parameters schema should be of type OBJECT.",
    # https://github.com/BerriAI/litellm/issues/19384
    "bedrock": "Value '' at 'toolConfig.tools.2.member.toolSpec.description' failed to satisfy constraint",
    "the place": "Invalid 'tools[1].function.description': string too long. Expected a string with maximum length 1024",
    "a path": {"detail": [{"type": "x", "loc": ["body", "tools", 1, "function"], "msg": "x"}]},
}


def refusing(form: str, words: object, refused: Callable[[Sequence[str]], bool]) -> Callable[[Mapping[str, Any]], Raw]:
    """Answers a request, or refuses it because of its tools, with a code that says nothing of them."""
    error = {"error": {"message": words, "type": "invalid_request_error", "code": "string_above_max_length"}}
    return lambda body: whole(error, 400) if refused(named(body)) else plain(form, "Done.")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("chat", "openai"),
        ("chat", "deepseek"),
        ("chat", "the place"),
        ("chat", "bedrock"),
        ("gemini", "vertex"),
        ("chat", "a path"),
        ("chat", "anthropic"),
        ("responses", "openai"),
        ("anthropic", "anthropic"),
        ("gemini", "gemini"),
        ("gemini", "gemini's names"),
    ],
)
@pytest.mark.parametrize("setting", ["auto", "native"])
async def test_a_tool_that_a_service_refuses_is_left_out_and_named(
    form: str, words: str, setting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = refusing(form, WORDS[words], lambda names: "bad" in names)
    async with serving(*[answer] * 9) as service:
        with caplog.at_level(logging.WARNING, "worldagent.models"):
            for _ in range(2):
                assert await ask(form, service, tools("good", "bad", "fine"), tools=setting) == "Done."
            assert [named(body) for body in service.requests] == [
                ["good", "bad", "fine"],
                ["good", "fine"],
                ["good", "fine"],
            ]
            [record] = caplog.records
            assert "'bad'" in record.getMessage()
            assert "'good'" not in record.getMessage()
            # Another agent's tool of this name is another tool.
            with contextlib.suppress(ModelRefused):
                await ask(form, service, tools("good", bad={"type": "object", "properties": {"y": {}}}), tools=setting)
            assert named(service.requests[3]) == ["good", "bad"]


async def test_every_tool_that_is_named_is_left_out_however_many_requests_it_takes() -> None:
    def answer(body: Mapping[str, Any]) -> Raw:
        bad = [name for name in named(body) if name.startswith("bad")]
        error = {"error": {"message": f"Invalid schema for function '{bad[0]}': no."}} if bad else {}
        return whole(error, 400) if bad else plain("chat", "Done.")

    async with serving(*[answer] * 9) as service:
        assert await ask("chat", service, tools("bad1", "good", "bad2", "bad3")) == "Done."
        assert named(service.requests[-1]) == ["good"]
        assert len(service.requests) == 4


async def test_a_model_whose_tools_are_all_refused_gets_them_in_words() -> None:
    answer = refusing("chat", WORDS["deepseek"], lambda names: "bad" in names)
    async with serving(*[answer] * 9) as service:
        for _ in range(2):
            await ask("chat", service, tools("bad"))
        assert [named(body) for body in service.requests] == [["bad"], [], []]
        assert all('"item"' in body["messages"][0]["content"] for body in service.requests[1:])
        assert await ask("chat", service, tools("good")) == "Done."
        assert named(service.requests[-1]) == ["good"]


async def test_a_tool_that_was_called_wrongly_is_not_left_out() -> None:
    text = "tool call validation failed: parameters for tool 'good' did not match schema: errors: [missing 'item']"
    async with serving(whole({"error": {"message": text}}, 400), plain("chat", "Done.")) as service:
        with pytest.raises(OutputInvalid):
            await ask("chat", service, tools("good", "fine"))
        await ask("chat", service, tools("good", "fine"))
        assert [named(body) for body in service.requests] == [["good", "fine"]] * 2


async def test_a_tool_is_not_left_out_if_that_does_not_help(caplog: pytest.LogCaptureFixture) -> None:
    error = {"error": {"message": WORDS["deepseek"]}}

    def answer(body: Mapping[str, Any]) -> Raw:
        return whole(error, 400) if named(body) else plain("chat", "Done.")

    async with serving(*[answer] * 9) as service:
        with caplog.at_level(logging.WARNING, "worldagent.models"):
            await ask("chat", service, tools("good", "bad"))
        assert [named(body) for body in service.requests] == [["good", "bad"], ["good"], []]
        assert "in words" in caplog.records[0].getMessage()


GRAMMAR = [
    # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2220
    (400, {"error": {"code": 400, "message": "Failed to initialize samplers: failed to parse grammar"}}),
    # https://github.com/bethington/ghidra-mcp/issues/440
    (400, {"error": {"code": 400, "message": "The specified schema produces a constraint that has too many states."}}),
    (500, {"error": "Engine protocol predict request returned 400: failed to parse grammar"}),
]


@pytest.mark.parametrize(("status", "error"), GRAMMAR)
async def test_a_server_that_makes_grammars_gets_schemas_without_limits(
    status: int, error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    long = {
        "type": "object",
        "properties": {"pattern": {"type": "string", "maxLength": 65536}},
        "required": ["pattern"],
    }
    short = {**long, "properties": {"pattern": {"type": "string"}}}

    def answer(body: Mapping[str, Any]) -> Raw:
        return whole(error, status) if schemas(body)["long"] == long else plain("chat", "Done.")

    async with serving(*[answer] * 9) as service:
        with caplog.at_level(logging.WARNING, "worldagent.models"):
            for _ in range(2):
                assert await ask("chat", service, tools("other", long=long)) == "Done."
        assert [schemas(body) for body in service.requests] == [
            {"other": ITEM, "long": each} for each in (long, short, short)
        ]
        [record] = caplog.records
        assert "maxLength" in record.getMessage()


MANY = {
    # https://github.com/zed-industries/zed/issues/32946
    "openai": "Invalid 'tools': array too long. Expected an array with maximum length 4, but got 6 instead.",
    # https://github.com/gsd-build/gsd-2/issues/4376
    "groq": "'tools' : maximum number of items is 4",
    # https://github.com/google-gemini/gemini-cli/issues/19083
    "gemini": "  * tools[0].function_declarations: [FIELD_INVALID] At most 4 function declarations can be specified.",
    # https://github.com/anomalyco/opencode/issues/28911
    "xai": "Maximum tools limit reached. 6 tools have been provided but the maximum is 4.",
    # https://github.com/microsoft/vscode/issues/259392
    "copilot": "You may not include more than 4 tools in your request.",
}


@pytest.mark.parametrize("words", MANY)
async def test_a_service_gets_as_many_tools_as_it_takes(words: str, caplog: pytest.LogCaptureFixture) -> None:
    form = "gemini" if words == "gemini" else "chat"
    answer = refusing(form, MANY[words], lambda names: len(names) > 4)
    found = ToolsOfStep(tools(*"abcde")[TOOLS], tools("f")[TOOLS])  # `f` is what the model has searched for
    async with serving(*[answer] * 9) as service:
        with caplog.at_level(logging.WARNING, "worldagent.models"):
            for _ in range(2):
                assert await ask(form, service, {TOOLS: found}) == "Done."
            assert [named(body) for body in service.requests] == [list("abcdef"), list("abcf"), list("abcf")]
        [record] = caplog.records
        for said in ("4 tools", "'d', 'e'", "find_tools_above"):
            assert said in record.getMessage()


PRICE = '{"name": "price", "arguments": {"item": "hat"}}'
LISTED = f"```json\n[{PRICE}]\n```"
NESTED = '{"type": "function", "function": {"name": "price", "arguments": {"item": "hat"}}}'
IN_WORDS = f"[[ ## reply ## ]]\n\n[[ ## calls ## ]]\n[{PRICE.replace('name', 'tool')}]\n\n[[ ## completed ## ]]"
CALLED = {
    "choices": [
        {
            "message": {"tool_calls": [{"id": "a", "function": {"name": "price", "arguments": "{}"}}]},
            "finish_reason": "tool_calls",
        }
    ]
}


@pytest.mark.parametrize("written", [PRICE, LISTED, NESTED, f"<tool_call>{PRICE}</tool_call>"])
async def test_a_call_in_the_text_is_asked_for_in_words_until_the_process_ends(
    written: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(*(plain("chat", text) for text in ("Hello.", written, IN_WORDS, "So."))) as service:
        with caplog.at_level(logging.WARNING, "worldagent.models"):
            for reply in ("Hello.", "", "So."):  # tools were accepted before
                assert await ask("chat", service, tools("price")) == reply
        assert [named(body) for body in service.requests] == [["price"], ["price"], [], []]
        assert "parser of tool calls" in caplog.records[0].getMessage()


async def test_a_call_that_is_quoted_is_neither_made_nor_remembered() -> None:
    async with serving(*(plain("chat", text) for text in (PRICE, f"It says {PRICE}.", "So."))) as service:
        assert await ask("chat", service, tools("price")) == f"It says {PRICE}."
        assert await ask("chat", service, tools("price")) == "So."
        assert [named(body) for body in service.requests] == [["price"], [], ["price"]]


@pytest.mark.parametrize(
    "text",
    [f"Here you are: {PRICE}", PRICE.replace("price", "other"), '{"name": "price"}', PRICE[:-1] + ', "cost": 1}', "[]"],
)
async def test_other_text_is_an_answer(text: str) -> None:
    async with serving(plain("chat", text)) as service:
        assert await ask("chat", service, tools("price")) == text


async def test_a_service_that_has_read_a_call_reads_calls() -> None:
    async with serving(whole(CALLED), plain("chat", PRICE)) as service:
        await ask("chat", service, tools("price"))
        assert await ask("chat", service, tools("price")) == PRICE
