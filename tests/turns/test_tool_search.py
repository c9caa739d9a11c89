"""With many tools the model is offered a search; what it found stays offered in the turn, wherever that goes on."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from support.agents import open_pauses, scripted_agent
from support.mcp_tools import agent_over, listing
from support.services import Said, in_words, named, service
from worldagent.core.pauses import Approve
from worldagent.harness import Function, Policy, Worker, tool
from worldagent.harness.gate import Rule
from worldagent.profiles import Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T11")

Form = Literal["native", "chat"]
FORMS: tuple[Form, ...] = ("native", "chat")
FEW = {"find_tools_above": 5}
THINGS = ("album", "booking", "coupon", "driver", "engine", "flight", "garden")
FOUND = "You have found these tools"


def many(done: list[str]) -> list[Function]:
    def make(name: str, about: str, **more: Any) -> Function:
        async def run(what: str) -> str:
            done.append(f"{name} {what}")
            return f"{name} of {what}"

        return tool(run, name=name, description=about, **more)

    lists = [make(f"list_{each}s", f"List every {each}.", risk="read_only") for each in THINGS]
    return [*lists, make("refund_payment", "Refund a charge of a customer.", approval=True)]


def calls(*wanted: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"reply": "", "calls": [{"tool": name, "arguments": arguments} for name, arguments in wanted]}


def step_of(call: ScriptedCall) -> Any:
    """Finds the tool, calls it, and answers."""
    plan = [calls(("find_tools", {"query": "refund a payment"})), calls(("refund_payment", {"what": "7"}))]
    return plan[len(call.steps)] if len(call.steps) < len(plan) else {"reply": "Refunded."}


def offers(call: ScriptedCall, form: Form) -> tuple[str, ...]:
    """The names of the tools of a request, in its order."""
    if form == "native":
        return call.tools
    lines = call.text.splitlines()
    return tuple(line[2:].partition(":")[0] for line in lines if line.startswith("- ") and "; arguments: {" in line)


@pytest.mark.on_every_database
@pytest.mark.requirement("T4", "T5")
@pytest.mark.parametrize("form", FORMS)
async def test_found_tools_stay_offered_when_another_process_resumes_and_leave_the_prefix_as_it_was(
    form: Form, tmp_path: Path
) -> None:
    done: list[str] = []
    first, second = ScriptedLM(step_of, form=form), ScriptedLM(step_of, form=form)
    async with scripted_agent(tmp_path, first, tools=many(done), settings=FEW) as agent:
        turn = await agent.thread("t").converse("Give Ann her money back.")
        assert turn.status == "paused"
        [pause] = await open_pauses(agent.thread("t"))
    async with scripted_agent(tmp_path, second, tools=many(done), settings=FEW) as agent:
        turn = await agent.thread("t").resume({pause.id: Approve()})
        assert (turn.text, done) == ("Refunded.", ["refund_payment 7"])
        await agent.thread("t").converse("And Bob?")
    asked = [*first.calls, *second.calls]
    assert [offers(call, form) for call in asked[:4]] == [
        ("find_tools",),
        ("find_tools", "refund_payment"),
        ("find_tools", "refund_payment"),
        ("find_tools",),  # the next turn begins with the same prefix again
    ]
    assert len({call.system for call in asked}) == 1
    if form == "chat":  # found tools are behind everything that stays the same
        assert [FOUND in text for _, text in asked[2].messages] == [False] * (len(asked[2].messages) - 1) + [True]


@pytest.mark.parametrize("form", FORMS)
async def test_a_tool_that_is_called_by_its_name_counts_as_found_and_an_unknown_one_is_looked_up(
    form: Form, tmp_path: Path
) -> None:
    plan = [calls(("list_engines", {"what": "x"})), calls(("list_motors", {"what": "x"})), {"reply": "Two."}]
    lm = ScriptedLM(plan, form=form)
    async with scripted_agent(tmp_path, lm, tools=many([]), settings=FEW) as agent:
        assert (await agent.thread("t").converse("How many engines?")).text == "Two."
    assert [offers(call, form) for call in lm.calls[:2]] == [("find_tools",), ("find_tools", "list_engines")]
    assert "there is no tool 'list_motors'; look it up with 'find_tools'" in lm.calls[2].text


async def test_search_finds_only_what_profile_and_policy_leave(tmp_path: Path) -> None:
    async def found(home: Path, **more: Any) -> str:
        lm = ScriptedLM(
            [calls(("find_tools", {"query": "list a driver, an album"})), {"reply": "Fine."}], form="native"
        )
        async with scripted_agent(home, lm, tools=many([]), **{"settings": {"find_tools_above": 3}, **more}) as agent:
            await agent.thread("t").converse("Hello")
        return str(lm.calls[1].steps)

    both = await found(tmp_path / "a")
    assert "list_drivers" in both
    assert "list_albums" in both
    policy = Policy(
        rules=(Rule(decision="refuse", function="list_albums"), Rule(decision="approve", function="find_tools"))
    )
    assert "list_albums" not in await found(tmp_path / "b", policy=policy)
    named = tuple(f"list_{each}s" for each in THINGS[1:])
    profile = Profile("p", tools=named, verification=Verification(enabled=False))
    assert "list_albums" not in await found(tmp_path / "c", profile=profile)
    refused = Policy(rules=(Rule(decision="refuse", function="find_tools"),))
    lm = ScriptedLM([{"reply": "Fine."}], form="native")
    async with scripted_agent(tmp_path / "d", lm, tools=many([]), settings=FEW, policy=refused) as agent:
        await agent.thread("t").converse("Hello")
    assert len(lm.calls[0].tools) == len(THINGS) + 1  # a search that can never run hides nothing


async def test_a_worker_searches_its_own_tools(tmp_path: Path) -> None:
    seen: list[tuple[str, ...]] = []

    def reply(call: ScriptedCall) -> Any:
        if "request" not in call.fields:
            return {"reply": "Done."} if call.steps else calls(("clerk", {"request": "Which drivers?"}))
        seen.append(call.tools)
        plan = [calls(("find_tools", {"query": "drivers"})), calls(("list_drivers", {"what": "all"}))]
        answer = plan[len(call.steps)] if len(call.steps) < len(plan) else {"result": "Some."}
        return {"result": "", **answer} if "calls" in answer else answer

    clerk = Worker("clerk", "You look things up.", "looks things up", tools=("list_*",))
    lm = ScriptedLM(reply, form="native")
    async with scripted_agent(tmp_path, lm, tools=many([]), workers=[clerk], settings=FEW) as agent:
        await agent.thread("t").converse("Which drivers?")
    assert seen == [("find_tools",), ("find_tools", "list_drivers"), ("find_tools", "list_drivers")]


async def test_own_tools_stay_offered_and_those_of_servers_are_searched(tmp_path: Path) -> None:
    server = listing(tmp_path, [{"name": f"list_{each}s", "inputSchema": {"type": "object"}} for each in THINGS])
    lm = ScriptedLM([{"reply": "Fine."}], form="native")
    own = many([])[-1]
    async with agent_over(tmp_path, server, lm, tools=[own], settings=FEW) as agent:
        await agent.thread("t").converse("Hello")
    assert "refund_payment" in lm.calls[0].tools
    assert "find_tools" in lm.calls[0].tools
    assert not [name for name in lm.calls[0].tools if name.startswith("t_")]


async def test_words_that_say_nothing_find_no_tool(tmp_path: Path) -> None:
    """A query of a few words is of no known language; the descriptions are."""
    plan = [calls(("find_tools", {"query": "close a ticket"})), {"reply": "Fine."}]
    lm = ScriptedLM(plan, form="native")

    def run() -> str:
        return "done"

    close = [tool(run, name=f"close_{each}", description=f"close {each} of the shop") for each in THINGS]
    read = tool(run, name="read_resource", description="Reads a resource of a server.")
    async with scripted_agent(tmp_path, lm, tools=[*close, read], settings=FEW) as agent:
        await agent.thread("t").converse("Close it.")
    assert set(lm.calls[1].tools) == {"find_tools", *(each.name for each in close)}


@pytest.mark.requirement("R17")
@pytest.mark.parametrize("takes", [True, False], ids=["takes references", "refuses them"])
async def test_what_was_found_stands_behind_the_static_prefix_where_the_service_allows(
    takes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    searched = Said("", (("find_tools", {"query": "list flights"}),))
    with service(searched, Said("", (("list_flights", {"what": "x"}),)), searched, Said("Two.")) as stub:
        stub.refuses = lambda body: not takes and "tool_reference" in json.dumps(body)
        stub.refusal = (400, "tools.1.defer_loading: Extra inputs are not permitted", None)
        stub.stand_in(monkeypatch)
        agent = scripted_agent(tmp_path, "anthropic/claude-sonnet-4-5", tools=many([]), settings=FEW)
        async with agent:
            assert (await agent.thread("t").converse("Which flights?")).text == "Two."
    first, *later = stub.requests
    if not takes:
        refused, *later = later
        assert "tool_reference" in json.dumps(refused)
        assert not [body for body in later if "defer_loading" in json.dumps(body)]
        return
    for body in later:
        assert [each for each in body["tools"] if not each.get("defer_loading")] == first["tools"]
        assert "list_flights" in [each["name"] for each in body["tools"]]
    results = [block for each in later[-1]["messages"] for block in each["content"] if block["type"] == "tool_result"]
    found, called, again = [each["content"] for each in results]
    assert {"type": "tool_reference", "tool_name": "list_flights"} in found
    assert again == found
    assert "list_flights of x" in called


async def test_what_was_found_is_not_referred_to_where_it_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    search = '[{"tool": "find_tools", "arguments": {"query": "list flights"}}]'
    native = (Said("", (("find_tools", {"query": "list flights"}),)), Said("None."))
    with service(in_words(calls=search), in_words("Two."), *native) as stub:
        stub.stand_in(monkeypatch)
        lm, tools = "anthropic/claude-sonnet-4-5", many([])
        async with scripted_agent(tmp_path / "a", lm, tools=tools, settings={**FEW, "model_tools": "json"}) as agent:
            assert (await agent.thread("t").converse("Which flights?")).text == "Two."
        stub.refuses = lambda body: "list_flights" in named(body)
        stub.refusal = (400, "Invalid schema for function 'list_flights'", None)
        async with scripted_agent(tmp_path / "b", lm, tools=tools, settings=FEW) as agent:
            assert (await agent.thread("t").converse("Which flights?")).text == "None."
    assert "list_flights" not in named(stub.requests[-1])
    assert '"tool_name": "list_flights"' not in json.dumps(stub.requests[-1])
