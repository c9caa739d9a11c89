"""What a profile's list of tools leaves, and that it never widens what the embedder allowed (P2, H9, H10)."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import CRITIC, calls, price, scripted_agent, stock, told
from worldagent import WorldAgent
from worldagent.core.errors import ProfileInvalid, ToolNotAllowed
from worldagent.core.pauses import Pause, Reject
from worldagent.graphs import Shape
from worldagent.harness import CallContext, Function, Policy, Registry, Worker, flow, tool
from worldagent.harness.gate import Rule
from worldagent.profiles import Profile, Skills, Verification
from worldagent.testing import ScriptedCall, ScriptedLM
from worldagent.tools import BuiltinTools

pytestmark = pytest.mark.requirement("P2")


def narrow(*tools: str, **more: Any) -> Profile:
    return Profile("narrow", tools=tools, verification=Verification(enabled=False), **more)


def silent() -> ScriptedLM:
    return ScriptedLM(lambda call: {"result": "Fine."} if "request" in call.fields else {"reply": "Fine."})


async def test_a_tool_outside_the_list_cannot_be_called_anywhere(tmp_path: Path) -> None:
    class Nothing(BaseModel):
        pass

    async def handle(params: Nothing, ctx: Any) -> Nothing:
        return params

    @flow
    async def both(ctx: CallContext, what: str) -> int:
        """Look twice."""
        return int(await ctx.call("price", {"what": what})) + len(await ctx.call("stock", {"what": what}))

    greedy = Worker("greedy", "You call.", tools=("*",))
    lm = ScriptedLM(lambda call: {"result": told(call)[-1]} if told(call) else calls(("stock", {"what": "hat"})))
    buy = Shape("buy", Nothing, Nothing, handle)
    async with scripted_agent(
        tmp_path,
        lm,
        tools=[price, stock, both],
        workers=[greedy, CRITIC],
        shapes=[buy],
        profile=narrow("price", "both", "greedy"),
    ) as agent:
        for name, params in (("stock", {"what": "hat"}), ("critic", {"request": "Go."}), ("buy", {})):
            with pytest.raises(
                ToolNotAllowed, match="not among the tools of this agent's profile; the tools are: price"
            ):
                await agent.call(name, params)
        with pytest.raises(ToolNotAllowed):
            await agent.thread("t").task("buy", {})
        with pytest.raises(ToolNotAllowed):
            await agent.thread("t").task("subagent", {"worker": "critic", "request": "Go."})
        with pytest.raises(ToolNotAllowed):
            await agent.call("both", {"what": "hat"})
        assert "there is no tool 'stock'" in await agent.call("greedy", {"request": "Go."})


def test_tools_that_a_source_adds_later_obey_the_list() -> None:
    registry = Registry([price], allow=["price", "shop_*"])
    registry.replace_source("shop", [stock])
    assert list(registry.names) == ["price"]
    with pytest.raises(ToolNotAllowed):
        registry.function("stock")

    @tool(name="shop_stock", risk="read_only")
    async def later(what: str) -> str:
        """Say what is in stock."""
        return what

    registry.replace_source("shop", [stock, later])
    assert list(registry.names) == ["price", "shop_stock"]
    assert list(registry.offered) == ["price", "shop_stock"]
    registry.replace_source("shop", [])
    assert list(registry.names) == ["price"]


async def test_parallel_execution_calls_on_its_callers_behalf_with_its_callers_tools(tmp_path: Path) -> None:
    worker = Worker("narrow_one", "You call.", tools=("parallel_execution", "price"))
    asked = [{"tool": "price", "arguments": {"what": "hat"}}, {"tool": "stock", "arguments": {"what": "hat"}}]

    def reply(call: ScriptedCall) -> Any:
        return {"result": told(call)[-1]} if told(call) else calls(("parallel_execution", {"calls": asked}))

    profile = narrow("narrow_one", "parallel_execution", "price", "stock")
    async with scripted_agent(
        tmp_path, ScriptedLM(reply), tools=[price, stock], workers=[worker], profile=profile
    ) as agent:
        result = await agent.call("narrow_one", {"request": "Go."})
    assert '"result": 3' in result
    assert "tool_not_allowed: 'narrow_one' is not allowed to call 'stock'" in result


@pytest.mark.requirement("P3")
async def test_general_has_the_same_prompt_and_tools_as_no_profile(tmp_path: Path) -> None:
    async def seen(thread: str, **more: Any) -> tuple[Any, ...]:
        lm = silent()
        async with scripted_agent(tmp_path, lm, tools=[price], workers=[CRITIC], identity="You sell.", **more) as a:
            await a.thread(thread).converse("Hello")
            return [(call.system, call.messages) for call in lm.calls], [f.name for f in a.functions]

    none = await seen("t1")
    assert none == await seen("t2", profile="general") == await seen("t3", profile=Profile("any", verification=_OFF))


_OFF = Verification(enabled=False)


async def test_all_sections_are_there_where_a_profile_says_so_and_speak_of_tools_that_are(tmp_path: Path) -> None:
    async def system(home: str, *tools: str, prompt: str | None = "<role>You look.</role>") -> str:
        profile = Profile("p", system_prompt=prompt, sections="all", tools=tools, verification=_OFF)
        lm, allowed = silent(), BuiltinTools(roots=(tmp_path / "project",))
        async with scripted_agent(tmp_path / home, lm, profile=profile, builtin_tools=allowed) as agent:
            await agent.thread("t").converse("Hello")
        return lm.calls[0].system

    (tmp_path / "project").mkdir()
    sections = ["<role>", "<critical_rules>", "<task_management>", "<agents_md>", "<tool_usage_guidelines>"]
    sections += ["<workflow>", "<complex_task_strategy>"]
    whole = await system("a", "manage_todo_list", "explore", "read_file")
    places = [whole.index(section) for section in sections]
    assert places == sorted(places)
    assert "searches to explore" in whole
    assert "Use parallel_execution" not in whole
    plain = await system("b", "read_file", prompt=None)
    assert [section for section in sections if section not in plain] == ["<role>", "<task_management>"]
    assert "searches to explore" not in plain


@pytest.mark.requirement("P5")
async def test_skills_that_are_switched_off_do_not_run(tmp_path: Path) -> None:
    from worldagent.agent import Composed
    from worldagent.core.errors import InvalidArgument

    skill = Composed("You judge.", shape="subagent", params={"worker": "critic", "request": "Go."})
    async with scripted_agent(tmp_path, silent(), workers=[CRITIC]) as agent:
        assert (await agent.thread("t").run_skill(skill)).status == "done"
    off = Profile("off", skills=Skills(enabled=False))
    async with scripted_agent(tmp_path, silent(), workers=[CRITIC], profile=off) as agent:
        with pytest.raises(InvalidArgument, match="the profile 'off' switches skills off"):
            await agent.thread("t").run_skill(skill)


async def test_a_profile_cannot_have_what_the_agent_does_not_allow(tmp_path: Path) -> None:
    def agent(profile: Profile, **allowed: Any) -> WorldAgent:
        return scripted_agent(tmp_path, silent(), profile=profile, builtin_tools=BuiltinTools(**allowed))

    with pytest.raises(ProfileInvalid, match="does not let its profiles use the tool 'shell'"):
        agent(narrow("shell"), allow=("read_*",))
    settings = {"shell": {"timeout": 61}}
    with pytest.raises(ProfileInvalid, match=r"timeout of 'shell' must be at most 60, got 61"):
        agent(narrow("shell", tool_settings=settings))
    longest = {"read_file": {"output_limit": 1_000_001}}
    with pytest.raises(ProfileInvalid, match="'read_file' must be at most 1000000, got 1000001;"):
        agent(narrow("read_file", tool_settings=longest), output_limits={"read_file": 1_000_000})


RISKS: dict[str, Any] = {
    "look": "read_only",
    "see": "read_only",
    "put": "write",
    "send": "network",
    "wipe": "destructive",
}
SHIPPED: dict[str, Any] = {"manage_todo_list": {"items": []}, "write_file": {"path": "made.txt", "content": "x"}}
RULES = (
    Rule(decision="approve", function="greedy", name="worker"),  # who calls is not the question
    Rule(decision="refuse", function="look", name="none"),
    Rule(decision="approve", function=("send", "wipe"), name="some"),
)


def effects(done: list[str]) -> list[Function]:
    """Functions that note their calls."""

    def made(name: str) -> Function:
        @tool(name=name, risk=RISKS[name])
        async def body() -> str:
            done.append(name)
            return name

        function: Function = body
        return function

    return [made(name) for name in RISKS]


async def rejecting(pause: Pause) -> Reject:
    return Reject("no")


@pytest.mark.requirement("H9")
@pytest.mark.parametrize(
    ("named", "done"),
    [(None, ["see", "send"]), (("*", *SHIPPED), ["see", "send"]), (("l*", "put", "wipe", "write_file"), [])],
)
async def test_a_profile_allows_only_what_policy_and_agent_allow(
    tmp_path: Path, named: tuple[str, ...] | None, done: list[str]
) -> None:
    left, found = [*RISKS, *SHIPPED], list[str]()
    (root := tmp_path / "root").mkdir()

    def reply(call: Any) -> Any:
        if not left:
            return {"result": "done"}
        name = left.pop(0)
        return calls((name, SHIPPED.get(name, {})))

    def agent(*allow: str) -> WorldAgent:
        return scripted_agent(
            tmp_path / "home",
            ScriptedLM(reply),
            tools=effects(found),
            workers=[Worker("greedy", "You call.", tools=("*",), retries=10)],
            policy=Policy(rules=RULES),
            approver=rejecting,
            profile=Profile(
                "any", tools=None if named is None else ("greedy", *named), verification=Verification(enabled=False)
            ),
            builtin_tools=BuiltinTools(roots=(root,), allow=allow),
        )

    if named is not None:
        with pytest.raises(ProfileInvalid, match="does not let its profiles use"):
            agent("manage_*")
    async with agent(*SHIPPED) as opened:
        turn = await opened.thread("t").task("subagent", {"worker": "greedy", "request": "Call all."})
    assert (turn.status, left, found) == ("done", [], done)
    assert not (root / "made.txt").exists()
