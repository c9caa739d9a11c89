"""Approving rules look at the value that the function receives, whatever else the arguments hold (H9)."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model

from support.agents import Muse, failure, scripted_agent
from support.mcp_tools import Asked, Got, calls_in, stdio
from worldagent import WorldAgent
from worldagent.core.errors import CallRefused, ParamsInvalid
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Function, Policy
from worldagent.harness.gate import Rule
from worldagent.harness.schema import params_of, result_of
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("H9")

GOOD, EVIL = "a@corp.com", "evil@x.io"
TO: dict[str, Any] = {"type": "object", "properties": {"to": {"type": "string"}}}


async def _model_calls(params: Asked, ctx: TaskContext) -> Got:
    await ctx.predict(Muse, about="it")
    return Got(value=await ctx.call(params.function, params.arguments))


MODEL_CALLS = Shape("model_calls", Asked, Got, _model_calls, entry=Muse)
"""Calls one function after a model was asked, so that the policy decides."""


def policy(function: str, path: str = "message.to") -> Policy:
    rule = Rule(decision="approve", function=function, arguments={path: "*@corp.com"}, times=10_000, optional=True)
    return Policy(default="refuse", rules=(rule,))


def thinking() -> ScriptedLM:
    return ScriptedLM(lambda call: {"thought": "Hm."})


async def called(agent: WorldAgent, function: str, arguments: Mapping[str, Any]) -> Any:
    turn = await agent.thread("t").task("model_calls", {"function": function, "arguments": dict(arguments)})
    return turn.result


# --- MCP servers ------------------------------------------------------------------------------------------------------

DECOYS: list[dict[str, Any]] = [
    {"message": {"to": EVIL}, "message.to": GOOD},
    {"message.to": GOOD},
    {"message": {"to": GOOD}, "Message": {"to": EVIL}},
    {"message": {"to": GOOD, "TO": EVIL}},
    {"message": {"to": GOOD, "recipient": EVIL}},
]


@pytest.mark.parametrize("arguments", DECOYS)
async def test_decoy_argument_does_not_reach_an_mcp_server(tmp_path: Path, arguments: dict[str, Any]) -> None:
    servers = {"t": stdio(tmp_path, broken="open schema")}
    async with scripted_agent(
        tmp_path, thinking(), mcp=servers, shapes=[MODEL_CALLS], policy=policy("t_mail")
    ) as agent:
        assert isinstance(await failure(called(agent, "t_mail", arguments)), CallRefused)
        assert calls_in(tmp_path) == []
        await called(agent, "t_mail", {"message": {"to": GOOD}})
    assert [call["arguments"] for call in calls_in(tmp_path)] == [{"message": {"to": GOOD}}]


# --- every way to declare params --------------------------------------------------------------------------------------


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: str = ""


class Ignoring(BaseModel):
    to: str = ""


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    to: str = ""


class Aliased(BaseModel):
    model_config = ConfigDict(extra="allow")
    to: str = Field("", alias="recipient")


class ReadAs(BaseModel):
    model_config = ConfigDict(extra="allow")
    to: str = Field("", validation_alias="recipient")


class WrittenAs(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)
    to: str = Field("", validation_alias="recipient", serialization_alias="target")


class Choices(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)
    to: str = Field("", validation_alias=AliasChoices("recipient", "TO"))


@dataclass
class Case:
    """A function, the path of the argument that a rule is about, and how its body reads that argument.

    Attributes:
        good: Arguments that the rule approves, so that a rule that approves nothing does not pass.
    """

    params: type[BaseModel]
    path: str
    reads: Callable[[Mapping[str, Any]], list[Any]]
    good: Mapping[str, Any] | None = None

    def function(self, received: list[Any]) -> Function:
        async def body(**given: Any) -> str:
            received.extend(self.reads(given))
            return "sent"

        return Function("send", body, self.params, result_of("send", {"type": "string"}), risk=("write",))


def holding(message: type[BaseModel], extra: Any) -> type[BaseModel]:
    field: Any = (message | None, None)
    return create_model("Params", __config__=ConfigDict(extra=extra), message=field)


def attribute(given: Mapping[str, Any]) -> list[Any]:
    return [] if given["message"] is None else [given["message"].to]


def exact(given: Mapping[str, Any]) -> list[Any]:
    message = given.get("message")
    return [message["to"]] if isinstance(message, dict) and "to" in message else []


def any_case(given: Mapping[str, Any]) -> list[Any]:
    """As `encoding/json` of Go reads it."""
    messages = [value for key, value in given.items() if key.lower() == "message" and isinstance(value, dict)]
    return [value for message in messages for key, value in message.items() if key.lower() == "to"]


def renamed(given: Mapping[str, Any]) -> list[Any]:
    """As a server that accepts a name that it does not declare."""
    message = given.get("message")
    return [*exact(given), *([message["recipient"]] if isinstance(message, dict) and "recipient" in message else [])]


def dotted(given: Mapping[str, Any]) -> list[Any]:
    return [given["message.to"]] if "message.to" in given else []


def schema_of(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"message": TO}, **more}


ONE_OF: dict[str, Any] = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, **TO["properties"]}, "required": ["kind"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "at": {"type": "string"}}, "required": ["kind"]},
    ]
}


def first_kind(given: Mapping[str, Any]) -> list[Any]:
    message = given.get("message")
    if not isinstance(message, dict):
        return []
    return [message.get("to")] if message.get("kind") == "a" else [message.get("at")]


SENT = {"message": {"to": GOOD}}
CASES = {
    **{
        f"{message.__name__} {extra}": Case(
            holding(message, extra=extra),
            "message.to",
            attribute,
            SENT if message in (Closed, Ignoring, Open) else None,
        )
        for message in (Closed, Ignoring, Open, Aliased, ReadAs, WrittenAs, Choices)
        for extra in ("forbid", "ignore", "allow")
    },
    "alias": Case(holding(Aliased, extra="allow"), "message.recipient", attribute, {"message": {"recipient": GOOD}}),
    "serialization alias": Case(
        holding(WrittenAs, extra="allow"), "message.target", attribute, {"message": {"recipient": GOOD}}
    ),
    "top alias": Case(Aliased, "recipient", lambda given: [given["to"]], {"recipient": GOOD}),
    "top name": Case(Aliased, "to", lambda given: [given["to"]]),
    "exact": Case(params_of("send", schema_of()), "message.to", exact, SENT),
    "any case": Case(params_of("send", schema_of()), "message.to", any_case, SENT),
    "hidden name": Case(params_of("send", schema_of()), "message.to", renamed, SENT),
    "explicitly open": Case(params_of("send", schema_of(additionalProperties=True)), "message.to", any_case, SENT),
    "patterns": Case(
        params_of("send", schema_of(patternProperties={"^[mM]": TO}, additionalProperties=False)),
        "message.to",
        any_case,
        SENT,
    ),
    "anything": Case(params_of("send", {"type": "object"}), "message.to", exact, SENT),
    "dotted": Case(
        params_of("send", {"type": "object", "properties": {"message.to": {"type": "string"}}}),
        "message.to",
        dotted,
        {"message.to": GOOD},
    ),
    "variants": Case(
        params_of("send", {"type": "object", "properties": {"message": ONE_OF}}),
        "message.to",
        first_kind,
        {"message": {"kind": "a", "to": GOOD}},
    ),
}

KEYS = st.sampled_from(
    ["message", "to", "message.to", "recipient", "target", "Message", "TO", "MESSAGE.TO", "kind", "at", "__proto__"]
)
LEAVES = st.sampled_from([GOOD, EVIL, GOOD, "a", "b", None])


def trees(depth: int) -> st.SearchStrategy[Any]:
    if not depth:
        return LEAVES
    below = st.one_of(LEAVES, trees(depth - 1), st.lists(trees(depth - 1), max_size=2))
    return st.dictionaries(KEYS, below, max_size=4)


INNER = st.dictionaries(st.sampled_from(["to", "TO", "recipient", "target", "kind", "at"]), LEAVES, max_size=4)
ARGUMENTS = st.one_of(
    trees(2), st.builds(lambda inner, more: {**more, "message": inner}, INNER, trees(1)), trees(1), INNER
)


EXAMPLES: list[dict[str, Any]] = [
    SENT,
    *DECOYS,
    {"message": {"recipient": GOOD, "to": EVIL}},
    {"message": {"recipient": EVIL, "target": GOOD}},
    {"recipient": GOOD, "to": EVIL},
    {"message": {"kind": "b", "to": GOOD, "at": EVIL}},
]


BATCH = 5  # calls of one turn, which is most of what a call takes here
_EXAMPLES = (settings.default or settings()).max_examples // BATCH


class Batch(BaseModel):
    calls: list[dict[str, Any]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_no_arguments_are_approved_for_a_value_that_the_function_does_not_receive(tmp_path: Path, name: str) -> None:
    case, received = CASES[name], list[Any]()

    async def handle(params: Batch, ctx: TaskContext) -> Got:
        await ctx.predict(Muse, about="it")
        outcomes: list[list[Any]] = []
        for arguments in params.calls:
            received.clear()
            try:
                outcomes.append([await ctx.call("send", arguments), [*received]])
            except (CallRefused, ParamsInvalid) as error:
                outcomes.append([error.code, [*received]])
        return Got(value=outcomes)

    async def outcomes_of(calls: list[Any]) -> Any:
        return (await agent.thread("t").task("batch", {"calls": calls})).result.value

    with asyncio.Runner() as runner:
        agent = scripted_agent(
            tmp_path,
            thinking(),
            tools=[case.function(received)],
            shapes=[Shape("batch", Batch, Got, handle, entry=Muse)],
            policy=policy("send", case.path),
        )
        runner.run(agent.__aenter__())

        @given(calls=st.lists(ARGUMENTS, min_size=BATCH, max_size=BATCH))
        @settings(max_examples=_EXAMPLES)
        @example(calls=EXAMPLES)
        def check(calls: list[Any]) -> None:
            for outcome, values in runner.run(outcomes_of(calls)):
                event(outcome)
                assert set(values) == ({GOOD} if outcome == "sent" else set())

        try:
            check()
            if case.good is not None:
                assert runner.run(outcomes_of([case.good])) == [["sent", [GOOD]]]
        finally:
            runner.run(agent.aclose())
