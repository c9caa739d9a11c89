"""What a Python function declares is what its `Function` takes and gives; an invalid one is refused when it is made."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from support.agents import refused, scripted_agent
from worldagent import WorldAgent
from worldagent.core.errors import FunctionInvalid, ParamsInvalid, ResultInvalid
from worldagent.harness import CallContext, Function, ToolContext, WorkerContext, flow, tool
from worldagent.harness.limits import Retry
from worldagent.testing import ScriptedLM

pytestmark = [pytest.mark.requirement("H2"), pytest.mark.timeout(60)]


class Odd:
    pass


def agent(home: Path, *functions: Function) -> WorldAgent:
    return scripted_agent(home, ScriptedLM([]), tools=functions)


async def test_a_field_as_a_default_keeps_what_it_says(tmp_path: Path) -> None:
    @tool(risk="read_only")
    async def big(x: int = Field(gt=3), y: Annotated[int, Field(lt=9)] = Field(default=5, description="own")) -> int:
        """Doc.

        Args:
            x: A number.
            y: Another one.
        """
        return x + y

    properties = big.input_schema["properties"]
    assert properties["x"] == {"exclusiveMinimum": 3, "type": "integer", "title": "X", "description": "A number."}
    assert properties["y"]["description"] == "own"
    assert properties["y"]["exclusiveMaximum"] == 9
    assert big.input_schema["required"] == ["x"]
    async with agent(tmp_path, big) as opened:
        assert await opened.call("big", {"x": 4}) == 9
        for wrong in ({"x": 3}, {"x": 4, "y": 9}, {}):
            with pytest.raises(ParamsInvalid):
                await opened.call("big", wrong)


@pytest.mark.parametrize("name", ["schema", "input"])
async def test_params_may_be_called_as_they_are(tmp_path: Path, name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"async def given({name}: int) -> int: return {name}", space)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function = tool(risk="read_only")(space["given"])
    async with agent(tmp_path, function) as opened:
        assert await opened.call("given", {name: 3}) == 3


@pytest.mark.parametrize("name", ["model_config", "model_dump", "_x"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"async def given({name}: int) -> int: return 1", space)
    error = refused(lambda: tool(space["given"]), FunctionInvalid)
    assert repr(name) in error.problem
    assert "'given'" in error.problem


async def no_context(x: int) -> int:
    return x


@pytest.mark.requirement("H7")
@pytest.mark.parametrize("context", [CallContext, WorkerContext])
async def test_a_tool_that_takes_a_context_to_call_with_is_a_flow(tmp_path: Path, context: Any) -> None:
    @tool(risk="read_only")
    async def price(what: str) -> int:
        return len(what)

    async def total(ctx: Any, one: str, other: str) -> int:
        first = await ctx.call("price", {"what": one})
        second = await ctx.call_tool("price", {"what": other})
        return int(first + second)

    total.__annotations__["ctx"] = context
    made = tool(total)
    assert made.kind == "flow"
    assert made.risk == ("read_only",)
    async with agent(tmp_path, price, made) as opened:
        assert await opened.call("total", {"one": "hat", "other": "coat"}) == 7


async def with_tool_context(ctx: ToolContext) -> int:
    return 1


async def with_call_context(ctx: CallContext) -> int:
    return 1


def blocking(ctx: CallContext) -> int:
    return 1


@pytest.mark.requirement("H7")
@pytest.mark.parametrize(
    ("decorator", "options", "body", "says"),
    [
        (flow, {}, with_tool_context, "takes a ToolContext, which cannot call others; take a WorkerContext"),
        (tool, {"retry": Retry(attempts=2)}, with_call_context, "'retry', but it is a flow, because its context"),
        (tool, {"tools": ["x"]}, no_context, "'tools', but it calls nothing; take a WorkerContext"),
        (tool, {}, blocking, "the flow 'blocking' is not async"),
        (tool, {"approve": True}, no_context, "'approve', which does not exist; did you mean 'approval'?"),
        (tool, {"nonsense": 1}, no_context, "the options are: approval, "),
    ],
)
def test_contradictory_declaration_is_refused(decorator: Any, options: dict[str, Any], body: Any, says: str) -> None:
    assert says in str(refused(lambda: decorator(**options)(body), FunctionInvalid))


def test_a_default_that_breaks_its_own_hint_is_refused() -> None:
    async def wrong(x: int = "a") -> int:  # type: ignore[assignment]  # that is what is tested
        return x

    async def missing(x: str = "a") -> str:
        return x

    missing.__defaults__ = (None,)

    async def bounded(x: Annotated[int, Field(gt=3)] = 1) -> int:
        return x

    for body in (wrong, missing, bounded):
        error = refused(lambda body=body: tool(body), FunctionInvalid)  # type: ignore[misc]  # mypy does not see what body is
        assert "default" in error.problem
        assert "'x'" in error.problem


async def test_a_result_that_json_would_take_an_entry_from_is_refused(tmp_path: Path) -> None:
    @tool(risk="read_only")
    async def both() -> dict[Any, Any]:
        return {1: 2, "1": 3}

    @tool(risk="read_only")
    async def numbered() -> dict[int, str]:
        return {1: "a", 2: "b"}

    async with agent(tmp_path, both, numbered) as opened:
        with pytest.raises(ResultInvalid):
            await opened.call("both", {})
        assert await opened.call("numbered", {}) == {1: "a", 2: "b"}


def test_what_has_no_schema_is_named() -> None:
    async def odd(good: int, wrong: Odd) -> int:
        return good

    async def forward(x: int) -> int:
        return x

    forward.__annotations__["x"] = "Nowhere"
    assert "'wrong'" in refused(lambda: tool(odd), FunctionInvalid).problem
    assert "'Nowhere'" in refused(lambda: tool(forward), FunctionInvalid).problem
