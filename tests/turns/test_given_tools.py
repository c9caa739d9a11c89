"""What an agent is given in `tools=` reaches its conversation, whatever library made it; what cannot is refused."""

import logging
from pathlib import Path
from typing import Annotated, Any

import dspy
import pytest
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from langchain_core.tools import tool as langchain_tool

from support.agents import scripted_agent, shape, streamed
from worldagent import Storage, WorldAgent
from worldagent.core import events as ev
from worldagent.core.errors import FunctionInvalid, InvalidArgument, NameTaken, WorldAgentError
from worldagent.graphs import TaskContext
from worldagent.harness import Policy, Worker, flow, tool
from worldagent.harness.gate import Rule
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM
from worldagent.tools import BuiltinTools

pytestmark = pytest.mark.requirement("T11")

FREE = Policy(rules=(Rule(decision="approve", function=("price", "price_*")),))


def price(item: str) -> float:
    """Price of an item in the shop, in euros.

    Args:
        item: What the item is called.
    """
    return {"rope": 12.5}[item]


async def price_async(item: str) -> float:
    """Price of an item in the shop, in euros."""
    return price(item)


class PriceTool(BaseTool):
    name: str = "price"
    description: str = "Price of an item in the shop, in euros."

    def _run(self, item: str) -> float:
        return price(item)


@langchain_tool("price")
async def _langchain_async(item: str) -> float:
    """Price of an item in the shop, in euros."""
    return price(item)


class Shop:
    def price(self, item: str) -> float:
        """Price of an item in the shop, in euros."""
        return price(item)


GIVEN: dict[str, Any] = {
    "method": Shop().price,
    "async function": tool(price_async, name="price"),
    "dspy": dspy.Tool(price),
    "dspy, async": dspy.Tool(price_async, name="price"),
    "dspy, with options": tool(dspy.Tool(price), risk="read_only"),
    "langchain class": PriceTool(),
    "langchain, async": _langchain_async,
}


def asking_once(form: Any = "native") -> ScriptedLM:
    def reply(call: ScriptedCall) -> Any:
        if call.steps:
            return {"reply": "It costs 12.50."}
        return {"reply": "", "calls": [{"tool": "price", "arguments": {"item": "rope"}}]}

    return ScriptedLM(reply, form=form)


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN.keys())
async def test_the_conversation_calls_a_tool_of_any_kind(given: Any, tmp_path: Path) -> None:
    lm = asking_once()
    async with scripted_agent(tmp_path, lm, tools=[given], policy=FREE) as agent:
        turn = await agent.thread("t").converse("What is the rope?")
    assert turn.text == "It costs 12.50."
    assert len(lm.calls) == 2
    assert "12.5" in str(lm.calls[1].steps)
    assert lm.calls[0].tools == ("price",)
    async with scripted_agent(tmp_path / "words", lm := asking_once("chat"), tools=[given], policy=FREE) as agent:
        assert (await agent.thread("t").converse("What is the rope?")).text == "It costs 12.50."
    assert "Price of an item in the shop, in euros." in lm.calls[0].text


def no_docstring(item: str) -> float:
    return 0.0


def injected(item: str, state: Annotated[dict[str, Any], InjectedToolArg]) -> float:
    """Price."""
    return 0.0


REFUSED: dict[str, tuple[Any, type[WorldAgentError], str]] = {
    "no docstring": ([no_docstring], FunctionInvalid, "'no_docstring' has no docstring"),
    "two of one name": ([price, dspy.Tool(price)], NameTaken, "'price'.*rename one"),
    "a worker": ([Worker("critic", "You judge.")], FunctionInvalid, "the worker 'critic'.*workers="),
    "one, no list": (price, InvalidArgument, "must be a list"),
    "a name": (["price"], FunctionInvalid, "'price' is not a Python function"),
    "what ships": (BuiltinTools(), InvalidArgument, "builtin_tools="),
    "injected": ([StructuredTool.from_function(injected)], FunctionInvalid, "requires 'state'"),
}


@pytest.mark.parametrize(("given", "error", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_a_tool_is_refused(given: Any, error: type[WorldAgentError], text: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=f"(?s){text}"):
        WorldAgent("novel", lm="local", tools=given, storage=Storage(home=tmp_path))


async def offered(home: Path, **more: Any) -> list[str]:
    lm = ScriptedLM([{"reply": "Fine."}], form="native")
    async with scripted_agent(home, lm, **more) as agent:
        await agent.thread("t").converse("Hello")
    return list(lm.calls[0].tools)


@tool(offered=False)
def hidden(item: str) -> str:
    """Not for the conversation."""
    return item


@flow
async def price_flow(ctx: Any, item: str) -> float:
    """Price, by a flow."""
    return float(await ctx.call("price", {"item": item}))


async def test_declaration_profile_and_policy_narrow_what_is_offered(tmp_path: Path) -> None:
    workers = [Worker("critic", "You judge.", "judges"), Worker("ghost", "You hide.", "hides", offered=False)]
    given: dict[str, Any] = {"tools": [price, hidden, price_flow], "workers": workers}
    assert await offered(tmp_path / "a", **given) == ["critic", "price", "price_flow"]
    assert await offered(
        tmp_path / "b",
        **given,
        profile=Profile("p", tools=("price", "hidden"), verification=Verification(enabled=False)),
    ) == ["price"]
    policy = Policy(rules=(Rule(decision="refuse", function="price"), Rule(decision="ask", function="price")))
    assert await offered(tmp_path / "c", **given, policy=policy) == ["critic", "price_flow"]
    partly = Policy(rules=(Rule(decision="refuse", function="price", arguments={"item": "rope"}),))
    assert "price" in await offered(tmp_path / "e", **given, policy=partly)


async def test_shape_that_is_not_offered_is_dispatched_by_code_alone(tmp_path: Path) -> None:
    async def said(ctx: TaskContext) -> str:
        return "Fine."

    given = [shape(said, "open", description="is offered"), shape(said, "secret", description="is not", offered=False)]
    for form in ("native", "chat"):
        lm = ScriptedLM([{"reply": "Fine."}], form=form)
        async with scripted_agent(tmp_path / form, lm, shapes=given) as agent:
            assert (await agent.thread("t").converse("Hello")).text == "Fine."
            assert (await agent.thread("t").task("secret", {})).result.text == "Fine."
        [call] = lm.calls
        sent = " ".join([*call.tools, call.text])
        assert "open" in sent
        assert "secret" not in sent


FILES = ["edit_file", "explore", "glob_files", "grep_content", "manage_todo_list", "parallel_execution", "read_file"]


@pytest.mark.requirement("P1")
async def test_tools_that_ship_are_offered_where_they_have_something_to_work_on(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    roots = BuiltinTools(roots=(root,))
    assert await offered(tmp_path / "a") == []
    assert await offered(tmp_path / "b", builtin_tools=roots) == [*FILES, "write_file"]
    on = BuiltinTools(roots=(root,), shell=True, web=True)
    assert await offered(tmp_path / "c", builtin_tools=on) == [*FILES, "shell", "web_fetch", "write_file"]
    tools = ("read_file", "web_search", "shell", "price")
    named = Profile("p", tools=tools, verification=Verification(enabled=False))
    assert await offered(tmp_path / "d", profile=named, tools=[price]) == ["price"]
    found = await offered(tmp_path / "e", profile=named, builtin_tools=roots, tools=[price])
    assert found == ["price", "read_file", "shell"]


async def test_many_tools_are_warned_of_with_their_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    many = [tool(price, name=f"price_{number}", risk="read_only") for number in range(200)]
    with caplog.at_level(logging.WARNING, "worldagent.tools"):
        await offered(tmp_path, tools=many, settings={"find_tools_above": None})
    [text] = {record.getMessage() for record in caplog.records if record.name == "worldagent.tools"}
    assert "200 tools" in text
    assert "tokens in every request" in text


async def test_events_of_a_call_say_what_it_is_and_its_arguments_where_they_may(tmp_path: Path) -> None:
    lm = asking_once()
    told = tool(price, title="Look up a price", risk="read_only", capture=True)
    plain = tool(price, risk="read_only")
    for given, expected in ((told, ("Look up a price", {"item": "rope"})), (plain, ("", None))):
        async with scripted_agent(tmp_path, lm, tools=[given]) as agent:
            _, events = await streamed(agent.thread(given.title or "plain").stream("What?"))
        [event] = [event for event in events if isinstance(event, ev.CallStarted)]
        assert (event.title, event.arguments, event.risk) == (*expected, ("read_only",))
