"""Tools that the service of a model runs itself: offered where the gate allows it, and recorded afterwards."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from support.services import (
    END,
    HOW,
    PAGE,
    ROLE,
    SIGNATURE,
    Format,
    Said,
    agent_at,
    buy,
    named,
    price,
    service,
    told,
)
from worldagent import Approve, Policy, Reject, Role, Rule, ServiceTool, Trace, Worker, WorldAgent, tool
from worldagent.core.errors import FunctionInvalid, GraphChanged, LimitReached, ModelUnavailable, RoleEchoed
from worldagent.core.events import CallDecided, CallEnded, CallStarted
from worldagent.profiles import Profile
from worldagent.testing import assert_no_role_leak

pytestmark = pytest.mark.requirement("H9")

WITH: tuple[Format, ...] = ("responses", "anthropic", "gemini")
WIRE = {"responses": "web_search", "anthropic": "web_search", "gemini": "googleSearch"}
QUERY = "depth of the harbour"
SEARCHES = Said("It is nine metres deep.", searched=QUERY)
SEARCH = ServiceTool("web_search", options={"max_uses": 3})
TRACE = Trace(capture=["inputs", "outputs"])
ALLOWED = Policy(rules=(Rule(decision="approve", function=("web_search", "buy")),))
AFTER = Policy(
    rules=(
        Rule(decision="approve", function="web_search", after="web_search", arguments={"max_uses": 3}),
        Rule(decision="approve", function="web_search"),
    )
)


async def said(agent: WorldAgent, text: str, *, stream: bool, **more: Any) -> tuple[Any, list[Any]]:
    """A turn, and its events if the model is asked for a stream."""
    thread = agent.thread("t")
    if not stream:
        return await thread.converse(text, **more), []
    async with thread.stream(text, **more) as running:
        events = [event async for event in running]
    assert running.turn is not None
    return running.turn, events


async def calls_of(agent: WorldAgent, turn: Any) -> list[Any]:
    """The calls in the trace of a turn."""
    return [each for each in (await agent.traces.get(turn.id)).records if each.kind == "call"]


@pytest.mark.requirement("H3", "H4", "T10")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wanted", WITH)
async def test_a_search_of_the_service_is_offered_recorded_counted_and_untrusted(
    wanted: Format, stream: bool, tmp_path: Path
) -> None:
    with service(SEARCHES) as stub:
        async with agent_at(tmp_path, stub, wanted, tools=[SEARCH, price], policy=ALLOWED, trace=TRACE) as agent:
            turn, events = await said(agent, "How deep is the harbour?", stream=stream)
            [*_, answer] = await agent.thread("t").history()
            [call] = await calls_of(agent, turn)
        assert (turn.text, stub.streamed) == (SEARCHES.text, [stream])
        assert WIRE[wanted] in named(stub.requests[0])
        if wanted == "gemini":  # it takes no functions beside its own tools
            assert named(stub.requests[0]) == [WIRE[wanted]]
            assert "price" in json.dumps(stub.requests[0])
        assert (call.name, call.risk, call.gate, call.status) == ("web_search", ("network",), "rule:1", "done")
        assert QUERY in str(call.inputs)
        assert PAGE["url"] in str(call.outputs)
        assert SIGNATURE not in str(call)  # only the service can read it
        if stream:
            [started] = [event for event in events if isinstance(event, CallStarted)]
            [ended] = [event for event in events if isinstance(event, CallEnded)]
            assert (started.function, started.arguments, ended.call_id) == (call.name, call.inputs, started.call_id)
        assert (turn.usage.calls, turn.usage.service_calls) == (1, 1)
        assert answer.body["untrusted"] == ["web_search"]


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("wanted", ["responses", "anthropic"])
async def test_what_a_service_did_goes_back_to_it_as_it_came_and_marks_the_calls_after_it(
    wanted: Format, tmp_path: Path
) -> None:
    first = Said("Let me look.", (("price", {"item": "rope"}),), searched=QUERY)
    last = Said("", (("buy", {"item": "rope"}),))
    with service(first, last) as stub:
        rules = (*AFTER.rules, Rule(decision="approve", function="buy"))
        options: dict[str, Any] = {"tools": [SEARCH, price, buy], "policy": Policy(rules=rules)}
        async with agent_at(tmp_path, stub, wanted, **options) as agent:
            turn = await agent.thread("t").converse("Buy rope.")
            [pause] = turn.pauses
        assert (pause.function, pause.reason) == ("buy", "the turn has read untrusted results of: web_search")
        assert WIRE[wanted] in named(stub.requests[1])
        sent = told(stub.requests[1])
        if wanted == "responses":
            assert [each["type"] for each in sent if each.get("type")].count("web_search_call") == 1
        else:
            [own] = [each for each in sent if each["role"] == "assistant"]
            kinds = [block["type"] for block in own["content"]]
            assert kinds == ["server_tool_use", "web_search_tool_result", "text", "tool_use"]
            assert own["content"][1]["content"][0]["encrypted_content"] == SIGNATURE


@pytest.mark.on_every_database
@pytest.mark.requirement("T4", "T5")
async def test_after_a_pause_what_was_found_goes_on_in_words_and_is_not_asked_again(tmp_path: Path) -> None:
    first = Said("Let me look.", (("buy", {"item": "rope"}),), searched=QUERY)
    options: dict[str, Any] = {"tools": [SEARCH, buy], "policy": AFTER}
    with service(first, END) as stub:
        async with agent_at(tmp_path, stub, "anthropic", **options) as agent:
            turn = await agent.thread("t").converse("Buy rope.")
            [pause] = turn.pauses
        async with agent_at(tmp_path, stub, "anthropic", **options) as agent:
            turn = await agent.thread("t").resume({pause.id: Approve()})
            assert (turn.text, turn.usage.service_calls) == (END.text, 1)
        assert len(stub.requests) == 2
        again = json.dumps(told(stub.requests[1]))
        assert "You called 'web_search' with" in again
        assert PAGE["url"] in again
        assert "server_tool_use" not in again


@pytest.mark.requirement("T5")
async def test_a_turn_that_a_failure_cuts_off_does_not_search_again(tmp_path: Path) -> None:
    first = Said("", (("price", {"item": "rope"}),), searched=QUERY)
    with service(first, END) as stub:
        stub.refusal = (503, "overloaded", None)

        @tool(risk="read_only")
        def price(item: str) -> float:
            """Price of an item."""
            stub.refuses_tools = True
            return 12.5

        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH, price], policy=AFTER) as agent:
            thread = agent.thread("t")
            with pytest.raises(ModelUnavailable):
                await thread.converse("What is rope?")
            stub.refuses_tools = False
            turn = await thread.resume()
            assert (turn.text, turn.usage.service_calls) == (END.text, 1)
            assert [each.name for each in await calls_of(agent, turn)] == ["web_search", "price"]


@pytest.mark.on_every_database
@pytest.mark.requirement("T4", "T5")
async def test_a_person_is_asked_once_before_the_model_is_with_the_options(tmp_path: Path) -> None:
    looks = Said("", (("price", {"item": "rope"}),))
    options: dict[str, Any] = {"tools": [SEARCH, price]}
    with service(looks, END) as stub:
        async with agent_at(tmp_path, stub, "anthropic", **options) as agent:
            turn = await agent.thread("t").converse("What is rope?")
            [pause] = turn.pauses
            assert (turn.status, stub.requests) == ("paused", [])
            assert (pause.function, pause.arguments, pause.risk) == ("web_search", {"max_uses": 3}, ("network",))
            assert "The service of the model runs this itself" in pause.description
        async with agent_at(tmp_path, stub, "anthropic", **options) as agent:
            thread = agent.thread("t")
            turn = await thread.resume({pause.id: Approve(arguments={"max_uses": 900})})
            [pause] = turn.pauses
            assert (pause.problem or "").startswith("the options of 'web_search' cannot be changed")
            turn = await thread.resume({pause.id: Approve()})
            assert turn.text == END.text
        assert [named(each) for each in stub.requests] == [["price", "web_search"]] * 2


@pytest.mark.requirement("T5")
async def test_a_tool_whose_options_have_changed_is_not_approved_by_an_earlier_answer(tmp_path: Path) -> None:
    with service() as stub:
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH]) as agent:
            [pause] = (await agent.thread("t").converse("What is rope?")).pauses
        wider = ServiceTool("web_search", options={"max_uses": 900})
        async with agent_at(tmp_path, stub, "anthropic", tools=[wider]) as agent:
            with pytest.raises(GraphChanged, match="'web_search', which the turn calls, is gone or has changed"):
                await agent.thread("t").resume({pause.id: Approve()})
        async with agent_at(tmp_path, stub, "chat", tools=[SEARCH]) as agent:  # its service has no such tool
            stub.answers.append(END)
            assert (await agent.thread("t").resume({pause.id: Approve()})).text == END.text
        assert [named(each) for each in stub.requests] == [[]]


@pytest.mark.parametrize(
    "calls", [(("price", {"item": "rope"}),), ()], ids=["in its next step", "in a step that is rejected"]
)
async def test_an_approval_ends_when_the_turn_reads_more_of_strangers(calls: Any, tmp_path: Path) -> None:
    first, second = Said("", calls, searched=QUERY), Said("Three are left.", searched="oars")
    with service(first, second) as stub:
        async with agent_at(tmp_path, stub, "responses", tools=[SEARCH, price]) as agent:
            thread = agent.thread("t")
            turn = await thread.converse("What is rope?")
            turn = await thread.resume({turn.pauses[0].id: Approve()})
            [pause] = turn.pauses
            assert (pause.function, len(stub.requests)) == ("web_search", 1)
            assert pause.reason == "the turn has read untrusted results of: web_search"
            turn = await thread.resume({pause.id: Approve()})
            assert (turn.text, turn.usage.service_calls) == (second.text, 2)


async def test_a_tool_that_a_person_rejects_is_not_offered_in_the_turn(tmp_path: Path) -> None:
    with service(Said("", (("price", {"item": "rope"}),)), END) as stub:
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH, price]) as agent:
            thread = agent.thread("t")
            turn = await thread.converse("What is rope?")
            turn = await thread.resume({turn.pauses[0].id: Reject("no")})
            assert turn.text == END.text
        assert [named(each) for each in stub.requests] == [["price"]] * 2


@pytest.mark.requirement("T13")
async def test_an_unattended_turn_goes_on_without_it_and_says_so_once(tmp_path: Path) -> None:
    with service(Said("", (("price", {"item": "rope"}),)), END, SEARCHES) as stub:
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH, price]) as agent:
            turn, events = await said(agent, "What is rope?", stream=True, unattended="refuse")
            assert turn.text == END.text
            [refused] = [event for event in events if isinstance(event, CallDecided)]
            assert (refused.function, refused.decision, refused.gate) == ("web_search", "refuse", "unattended")
        assert [named(each) for each in stub.requests] == [["price"]] * 2
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH, price], policy=ALLOWED) as agent:
            turn = await agent.thread("u").converse("How deep?", unattended="refuse")
            assert (turn.text, turn.usage.service_calls) == (SEARCHES.text, 1)


@pytest.mark.requirement("H3", "T13")
async def test_a_tool_that_is_not_offered_any_more_is_not_in_the_steps_that_go_back(tmp_path: Path) -> None:
    with service(Said("", (("price", {"item": "rope"}),), searched=QUERY), END) as stub:
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH, price], policy=ALLOWED) as agent:
            turn = await agent.thread("t").converse("What is rope?", unattended="refuse")
            assert turn.text == END.text
        first, second = stub.requests
        assert (named(first), named(second)) == (["price", "web_search"], ["price"])
        assert "server_tool_use" not in json.dumps(second)
        assert f'You called \'web_search\' with {{\\"query\\": \\"{QUERY}\\"}}' in json.dumps(second)


@pytest.mark.requirement("P2")
async def test_a_profile_names_it_like_any_other_tool_and_its_judge_sees_what_was_found(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"tools": [SEARCH, price], "policy": ALLOWED}
    chosen["profile"] = Profile("sailor", tools=("web_search",))
    with service(SEARCHES) as stub:
        async with agent_at(tmp_path, stub, "anthropic", **chosen) as agent:
            assert (await agent.thread("t").converse("How deep is the harbour?")).text == SEARCHES.text
        asked, judged = stub.requests
        assert named(asked) == ["web_search"]
        assert PAGE["url"] in json.dumps(judged)


async def test_a_policy_that_refuses_it_asks_nobody(tmp_path: Path) -> None:
    with service(END) as stub:
        policy = Policy(rules=(Rule(decision="refuse", risk="network"),))
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH, price], policy=policy) as agent:
            assert (await agent.thread("t").converse("What is rope?")).text == END.text
        assert named(stub.requests[0]) == ["price"]


async def test_a_service_without_the_tool_gets_none_and_it_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "worldagent.tools")
    with service(END, END) as stub:
        tools = [ServiceTool("file_search", options={"vector_store_ids": ["v"]}), price]
        async with agent_at(tmp_path, stub, "chat", tools=tools) as agent:
            for _ in range(2):
                assert (await agent.thread("t").converse("What is rope?")).text == END.text
        assert [named(each) for each in stub.requests] == [["price"]] * 2
    [said] = [each.getMessage() for each in caplog.records]
    assert said.startswith("the service of the model 'openai/gpt-stub' has no tool 'file_search'")


@pytest.mark.requirement("H6", "H8")
async def test_a_worker_has_the_tool_if_it_names_it_and_its_caller_does_not(tmp_path: Path) -> None:
    asks = Said("", (("scout", {"request": "How deep?"}),))
    own = ServiceTool("web_search", offered=False)
    scout = Worker("scout", "You find things out.", tools=("web_search",))
    with service(asks, SEARCHES, END) as stub:
        options: dict[str, Any] = {"tools": [own], "workers": [scout]}
        async with agent_at(tmp_path, stub, "anthropic", **options) as agent:
            thread = agent.thread("t")
            turn = await thread.converse("How deep is the harbour?")
            [pause] = turn.pauses
            assert (pause.function, pause.caller, len(stub.requests)) == ("web_search", "scout", 1)
            turn = await thread.resume({pause.id: Approve()})
            assert (turn.text, turn.usage.service_calls) == (END.text, 1)
            [*_, answer] = await thread.history()
            assert answer.body["untrusted"] == ["web_search"]
        assert [named(each) for each in stub.requests] == [["scout"], ["web_search"], ["scout"]]


@pytest.mark.requirement("H4")
async def test_the_limit_of_calls_counts_what_a_service_did(tmp_path: Path) -> None:
    options: dict[str, Any] = {"tools": [SEARCH, price], "policy": AFTER, "settings": {"turn_calls": 1}}
    with service(Said("", searched=QUERY), END, Said("", (("price", {"item": "rope"}),), searched=QUERY)) as stub:
        async with agent_at(tmp_path, stub, "anthropic", **options) as agent:
            assert (await agent.thread("u").converse("How deep?")).text == END.text
        assert [named(each) for each in stub.requests] == [["price", "web_search"], ["price"]]
        async with agent_at(tmp_path, stub, "anthropic", **options) as agent:
            with pytest.raises(LimitReached, match="the turn reached its limit of 1 calls"):
                await agent.thread("t").converse("What is rope?")


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_anthropic_pauses_goes_on(stream: bool, tmp_path: Path) -> None:
    first = Said("I look at maps.", searched=QUERY, ended="pause_turn")
    with service(first, Said("Nothing yet.", searched="tides", ended="pause_turn"), SEARCHES) as stub:
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH], policy=ALLOWED, trace=TRACE) as agent:
            turn, _ = await said(agent, "How deep is the harbour?", stream=stream)
            calls = await calls_of(agent, turn)
        assert turn.text == f"{first.text}\n\nNothing yet.\n\n{SEARCHES.text}"
        assert (turn.usage.calls, turn.usage.input_tokens, turn.usage.service_calls) == (1, 300, 3)
        assert [each.inputs for each in calls] == [{"query": each} for each in (QUERY, "tides", QUERY)]
        assert [len(told(each)) for each in stub.requests] == [1, 2, 2]
        own = told(stub.requests[2])[-1]
        assert [block["type"] for block in own["content"]].count("web_search_tool_result") == 2


async def test_an_answer_that_is_paused_again_and_again_is_cut(tmp_path: Path) -> None:
    with service() as stub:
        stub.reply = lambda body: Said("Still looking.", searched=QUERY, ended="pause_turn")
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH], policy=ALLOWED) as agent:
            turn = await agent.thread("t").converse("How deep is the harbour?")
        assert len(stub.requests) == turn.usage.service_calls == 8


@pytest.mark.requirement("R7", "R16")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_role_in_a_query_is_withheld_from_what_is_recorded(stream: bool, tmp_path: Path) -> None:
    with service(Said("Nine metres.", searched=HOW)) as stub:
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH], policy=ALLOWED, trace=TRACE) as agent:
            turn, events = await said(agent, "How deep is it?", stream=stream, role=ROLE)
            assert turn.text == "Nine metres."
            assert turn.withheld.fields == ("service_calls",)
            [call] = await calls_of(agent, turn)
            assert call.inputs["query"] != HOW
        assert_no_role_leak([tmp_path, events], [HOW])


@pytest.mark.requirement("R16")
async def test_a_role_that_must_not_be_disclosed_fails_the_turn_and_the_search_still_counts(tmp_path: Path) -> None:
    strict = Role("pilot", HOW, echo="fail")
    with service(Said("Nine metres.", searched=HOW)) as stub:
        async with agent_at(tmp_path, stub, "anthropic", tools=[SEARCH], policy=ALLOWED) as agent:
            with pytest.raises(RoleEchoed) as failed:
                await agent.thread("t").converse("How deep is it?", role=strict, key="once")
            events = [event async for event in agent.events(str(failed.value.turn_id))]
            [started] = [event for event in events if isinstance(event, CallStarted)]
            assert started.arguments == {}
        assert_no_role_leak([tmp_path, events], [HOW])


def test_a_declaration_that_no_service_understands_is_refused() -> None:
    with pytest.raises(FunctionInvalid, match="no service has a tool 'browse'; use one of web_search, web_fetch"):
        ServiceTool("browse")
    with pytest.raises(FunctionInvalid, match="the options of the tool 'web_search' must be a mapping, got 'list'"):
        ServiceTool("web_search", options=[1])  # type: ignore[arg-type]  # what is refused
    with pytest.raises(FunctionInvalid, match="the options of the tool 'web_search' must be JSON"):
        ServiceTool("web_search", options={"a": ROLE})
    with pytest.raises(FunctionInvalid, match="the options of the tool 'file_search' must name what is searched"):
        ServiceTool("file_search")
