"""An agent as a node of a LangGraph graph, and as a tool of LangChain: pauses, kills, roles and what is refused."""

import asyncio
import operator
import re
import signal
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send

from support.agents import Thinking, answering, scripted_agent
from support.outer_graph import CONFIG, ROLE, approvals, asked_in, outer_of, paying_agent
from support.processes import lines, run_child
from worldagent import Role, Tier, WorldAgent
from worldagent.agent import GraphContext, Thread
from worldagent.core.errors import (
    AgentClosed,
    FunctionInvalid,
    InvalidArgument,
    ModelUnavailable,
    NothingToResume,
    RoleChanged,
    RoleInvalid,
    RoleRequired,
    ThreadPaused,
)
from worldagent.core.pauses import Approve
from worldagent.harness import CallContext, flow
from worldagent.testing import ScriptedCall, ScriptedLM, assert_no_role_leak

HAT: Any = {"messages": [("user", "hat")]}


def said(state: Any) -> list[str]:
    return [message.text for message in state["messages"]]


@asynccontextmanager
async def asking(home: Path, **how: Any) -> AsyncGenerator[tuple[WorldAgent, Any, Any]]:
    """The paying agent, a graph around it, and the state in which that waits for an approval."""
    async with paying_agent(home) as agent:
        graph = outer_of(agent.as_node(), InMemorySaver())
        yield agent, graph, await graph.ainvoke(HAT, CONFIG, **how)


@asynccontextmanager
async def savers(home: Path, kind: str) -> AsyncGenerator[Any]:
    if kind == "memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(str(home / "outer.sqlite")) as saver:
        yield saver


# --- the turn of a task -----------------------------------------------------------------------------------------------


async def test_a_node_answers_the_last_human_message_on_the_thread_of_the_graph(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering("Fine.")) as agent:
        graph = outer_of(agent.as_node(), InMemorySaver())
        state = await graph.ainvoke({"messages": [("user", "One?"), ("ai", "Hm."), ("user", "Two?")]}, CONFIG)
        history = await agent.thread("t").history()
    assert said(state) == ["One?", "Hm.", "Two?", "Fine."]
    assert isinstance(state["messages"][-1], AIMessage)
    assert [message.body["text"] for message in history] == ["Two?", "Fine."]


async def test_message_answer_and_thread_can_be_chosen(tmp_path: Path) -> None:
    class State(TypedDict, total=False):
        asked: str
        answered: str
        turn: str

    async with scripted_agent(tmp_path, answering("Fine.")) as agent:
        by_key = agent.as_node(message="asked", answer="answered", thread=agent.thread("mine", account="ana"))
        by_function = agent.as_node(
            message=lambda state: state["asked"].upper(),
            answer=lambda turn: {"turn": turn.id},
            thread=lambda runtime: agent.thread("theirs", account=runtime.context["account"]),
        )
        first = await outer_of(by_key, None, state=State).ainvoke({"asked": "One?"})
        second = await outer_of(by_function, None, state=State, context=dict).ainvoke(
            {"asked": "Two?"}, context={"account": "bo"}
        )
        asked = [(await agent.thread(name).history())[0].body["text"] for name in ("mine", "theirs")]
        [found] = await agent.threads(account="bo")
    assert first == {"asked": "One?", "answered": "Fine."}
    assert (found.thread, found.turn_id) == ("theirs", second["turn"])
    assert asked == ["One?", "TWO?"]


async def test_the_thread_id_of_the_graph_can_be_a_uuid(tmp_path: Path) -> None:
    chosen = uuid.uuid4()
    async with scripted_agent(tmp_path, answering("Fine.")) as agent:
        graph = outer_of(agent.as_node(), InMemorySaver())
        state = await graph.ainvoke(HAT, {"configurable": {"thread_id": chosen}})
        history = await agent.thread(str(chosen)).history()
    assert said(state) == ["hat", "Fine."]
    assert len(history) == 2


async def test_the_events_of_the_turn_are_in_the_stream_of_the_graph_once(tmp_path: Path) -> None:
    async with paying_agent(tmp_path) as agent:
        graph = outer_of(agent.as_node(), InMemorySaver())
        seen: list[list[Any]] = [[event async for event in graph.astream(HAT, CONFIG, stream_mode="custom")]]
        answers = approvals({"__interrupt__": (await graph.aget_state(CONFIG)).interrupts})
        seen.append([event async for event in graph.astream(answers, CONFIG, stream_mode="custom")])
    before, after = ([event["type"] for event in events] for events in seen)
    assert before[0] == "turn_started"
    assert "pause_opened" in before
    assert "".join(event["text"] for event in seen[1] if event["type"] == "text_delta") == "It is paid."
    numbers = [event["seq"] for events in seen for event in events if "seq" in event]
    assert numbers == list(range(1, len(numbers) + 1))
    assert after[-1] == "turn_ended"


async def test_an_outer_retry_finds_the_same_turn(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if call.index == 1:
            raise ConnectionError("the line is cut")
        return {"reply": "Fine."}

    lm = ScriptedLM(reply)
    async with scripted_agent(tmp_path, lm) as agent:
        policy = RetryPolicy(initial_interval=0.01, jitter=False, retry_on=ModelUnavailable)
        graph = outer_of(agent.as_node(), InMemorySaver(), retry_policy=policy)
        state = await graph.ainvoke(HAT, CONFIG)
        history = await agent.thread("t").history()
    assert said(state) == ["hat", "Fine."]
    assert len(lm.calls) == 2
    assert [message.kind for message in history] == ["message", "answer"]


async def test_a_node_that_fails_after_the_turn_gets_its_outcome_again(tmp_path: Path) -> None:
    tries: list[str] = []

    def answer(turn: Any) -> dict[str, Any]:
        tries.append(turn.id)
        if len(tries) == 1:
            raise ConnectionError
        return {"messages": [("ai", turn.text)]}

    lm = answering("Fine.")
    async with scripted_agent(tmp_path, lm) as agent:
        policy = RetryPolicy(initial_interval=0.01, jitter=False)
        graph = outer_of(agent.as_node(answer=answer), InMemorySaver(), retry_policy=policy)
        assert said(await graph.ainvoke(HAT, CONFIG)) == ["hat", "Fine."]
    assert len(lm.calls) == 1
    assert len(tries) == 2
    assert len(set(tries)) == 1


async def test_a_cancelled_run_of_the_graph_leaves_the_turn_to_the_next_one(tmp_path: Path) -> None:
    model = Thinking()
    async with scripted_agent(tmp_path, model.lm) as agent:
        graph = outer_of(agent.as_node(), InMemorySaver())
        run = asyncio.create_task(graph.ainvoke(HAT, CONFIG))
        await asyncio.wait_for(model.asked.wait(), 20)
        run.cancel()
        await asyncio.wait({run})
        again = asyncio.create_task(graph.ainvoke(None, CONFIG))
        model.may.set()
        assert said(await again) == ["hat", "Fine."]
    assert len(model.lm.calls) == 1


# --- pauses -----------------------------------------------------------------------------------------------------------


async def test_a_pause_interrupts_the_graph_and_its_resume_answers_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as (_, graph, waiting):
        [pause] = asked_in(waiting)["pauses"]
        state = await graph.ainvoke(approvals(waiting), CONFIG)
    assert (pause["kind"], pause["function"], pause["arguments"]) == ("approval", "pay", {"what": "hat"})
    assert set(asked_in(waiting)) == {"turn", "thread", "pauses"}
    assert said(state) == ["hat", "It is paid."]
    assert lines(tmp_path / "effects") == ["hat"]
    assert len(lines(tmp_path / "asked")) == 2


async def test_pauses_can_be_answered_one_after_another_and_a_question_by_its_value(tmp_path: Path) -> None:
    @flow
    async def choose(ctx: CallContext, name: str) -> str:
        """Ask for a colour."""
        return f"{name} is {await ctx.ask_person(f'Which colour for {name}?', ['red', 'blue'])}"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if call.steps:
            return {"reply": " ".join(call.steps)}
        return {"reply": "", "calls": [{"tool": "choose", "arguments": {"name": name}} for name in ("hat", "rope")]}

    async with scripted_agent(tmp_path, ScriptedLM(reply, form="native"), tools=[choose]) as agent:
        graph = outer_of(agent.as_node(), InMemorySaver())
        state = await graph.ainvoke(HAT, CONFIG)
        questions = []
        for colour in ("red", "blue"):
            first, *_ = asked_in(state)["pauses"]
            questions.append(first["question"])
            state = await graph.ainvoke(Command(resume={first["id"]: {"answer": colour}}), CONFIG)
    assert sorted(questions) == ["Which colour for hat?", "Which colour for rope?"]
    assert "hat is red" in said(state)[-1]
    assert "rope is blue" in said(state)[-1]


async def test_nodes_that_wait_at_once_are_answered_by_the_ids_of_their_interrupts(tmp_path: Path) -> None:
    class State(TypedDict, total=False):
        message: str
        said: Annotated[list[str], operator.add]

    async with paying_agent(tmp_path) as agent:

        def own_thread(runtime: Any) -> Thread:
            return agent.thread(runtime.execution_info.task_id)

        node = agent.as_node(
            message="message",
            answer=lambda turn: {"said": [turn.text]},
            thread=own_thread,
        )
        graph: Any = StateGraph(State)
        graph.add_node("shop", node)
        graph.add_conditional_edges(START, lambda _: [Send("shop", {"message": item}) for item in ("hat", "rope")])
        compiled = graph.compile(checkpointer=InMemorySaver())
        waiting = await compiled.ainvoke({}, CONFIG)
        answers: Any = {
            interrupt.id: {pause["id"]: {"approve": {}} for pause in interrupt.value["pauses"]}
            for interrupt in waiting["__interrupt__"]
        }
        state = await compiled.ainvoke(Command(resume=answers), CONFIG)
    assert len(answers) == 2
    assert state["said"] == ["It is paid."] * 2
    assert sorted(lines(tmp_path / "effects")) == ["hat", "rope"]


@pytest.mark.parametrize(
    ("resume", "problem"),
    [
        ({"nothing": {"approve": {}}}, r"has no pause 'nothing'; the open pauses are: "),
        ("yes", r"the answers must be an object; resume with Command"),
        ({"PAUSE": "yes"}, r"must be an object with exactly one form of answer; give one of approve, "),
        ({"PAUSE": {"approve": {"all": True}}}, r"is invalid; approve is an object with arguments, always, hash"),
        (
            {"PAUSE": {"reject": {"reason": 5}}},
            r"reason in the answer to the pause .* must be a text, got 'int'; say why",
        ),
        ({"PAUSE": {"answer": 1}}, r"Answer cannot answer the pause .*; answer with Approve"),
    ],
    ids=["unknown", "no object", "no form", "unknown field", "no text", "wrong kind"],
)
async def test_a_refused_answer_interrupts_the_graph_again_and_a_better_one_is_taken(
    tmp_path: Path, resume: Any, problem: str
) -> None:
    async with asking(tmp_path) as (_, graph, waiting):
        [pause] = asked_in(waiting)["pauses"]
        if isinstance(resume, dict):
            resume = {name.replace("PAUSE", pause["id"]): answer for name, answer in resume.items()}
        again = await graph.ainvoke(Command(resume=resume), CONFIG)
        assert asked_in(again)["pauses"] == [pause]
        with pytest.raises(AssertionError, match=problem):
            raise AssertionError(asked_in(again)["problem"])
        state = await graph.ainvoke(approvals(again), CONFIG)
    assert said(state) == ["hat", "It is paid."]
    assert lines(tmp_path / "effects") == ["hat"]


async def test_nodes_side_by_side_and_in_a_subgraph_have_turns_of_their_own(tmp_path: Path) -> None:
    async with paying_agent(tmp_path) as agent:
        inner = outer_of(agent.as_node(thread=agent.thread("inner")), None)
        graph: Any = StateGraph(MessagesState)
        for name, node in (("one", agent.as_node()), ("two", inner)):
            graph.add_node(name, node)
            graph.add_edge(START, name)
        made = graph.compile(checkpointer=InMemorySaver())
        waiting = await made.ainvoke(HAT, CONFIG)
        asked = {each.id: each.value for each in waiting["__interrupt__"]}
        answers: Any = {
            name: {pause["id"]: {"approve": {}} for pause in value["pauses"]} for name, value in asked.items()
        }
        state = await made.ainvoke(Command(resume=answers), CONFIG)
    assert sorted(value["thread"] for value in asked.values()) == ["inner", "t"]
    assert said(state) == ["hat", "It is paid.", "It is paid."]
    assert lines(tmp_path / "effects") == ["hat", "hat"]
    assert len(lines(tmp_path / "asked")) == 4


async def test_a_turn_that_another_caller_resumed_gives_the_graph_its_answer(tmp_path: Path) -> None:
    async with asking(tmp_path) as (agent, graph, waiting):
        thread = agent.thread("t")
        await thread.resume({pause.id: Approve() for pause in await thread.pauses()})
        state = await graph.ainvoke(approvals(waiting), CONFIG)
    assert said(state) == ["hat", "It is paid."]
    assert lines(tmp_path / "effects") == ["hat"]


async def test_a_cancelled_turn_fails_its_node(tmp_path: Path) -> None:
    async with asking(tmp_path) as (agent, graph, waiting):
        assert await agent.thread("t").cancel()
        with pytest.raises(NothingToResume, match=r"was cancelled; run the graph with a new message"):
            await graph.ainvoke(approvals(waiting), CONFIG)
    assert lines(tmp_path / "effects") == []


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T5")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("kill", ["", "plan", "paying", "paid", "answer"])
async def test_a_killed_graph_resumes_in_another_process_with_one_effect(tmp_path: Path, kill: str) -> None:
    async def order(what: str, kill: str = "") -> dict[str, Any]:
        """Do it in a process, and if that is killed, run the graph again in another one."""
        code, found, err = await run_child("outer_graph", home=str(tmp_path), what=what, kill=kill)
        if kill:
            assert (code, found) == (-signal.SIGKILL, []), err
            return await order("again")
        assert code == 0, err
        [state] = found
        return dict(state)

    state = await order("begin", kill if kill == "plan" else "")
    assert state == {"said": ["hat"], "asked": ["approval"], "turns": 1}
    state = await order("resume", "" if kill == "plan" else kill)
    if kill in ("paying", "paid"):  # only a person can tell whether the effect happened
        assert state["asked"] == ["uncertain"]
        state = await order("resume")
    assert state == {"said": ["hat", "It is paid."], "asked": [], "turns": 1}
    assert lines(tmp_path / "effects") == ([] if kill == "paying" else ["hat"])
    assert set(lines(tmp_path / "asked")) == {"with the role"}
    assert_no_role_leak(tmp_path, ROLE.content)


# --- the role ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R7")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_role_is_that_of_the_context_and_no_checkpoint_has_it(tmp_path: Path, kind: str) -> None:
    async with savers(tmp_path, kind) as saver, paying_agent(tmp_path) as agent:
        graph = outer_of(agent.as_node(), saver)
        chunks = [
            chunk
            async for chunk in graph.astream(
                HAT, CONFIG, context=ROLE, stream_mode=["values", "updates", "custom", "tasks", "checkpoints"]
            )
        ]
        waiting = await graph.aget_state(CONFIG)
        state = await graph.ainvoke(approvals({"__interrupt__": waiting.interrupts}), CONFIG, context=ROLE)
        history = [found async for found in graph.aget_state_history(CONFIG)]
        stored = [vars(saver)] if kind == "memory" else []
        assert_no_role_leak([chunks, state, history, *stored], ROLE.content)
    assert lines(tmp_path / "asked") == ["with the role"] * 2
    assert_no_role_leak(tmp_path, ROLE.content)


class Context(TypedDict):
    role: Role


class WithRole:
    role = ROLE


@pytest.mark.parametrize(
    ("schema", "context"), [(Context, {"role": ROLE}), (WithRole, WithRole()), (dict, {"role": None}), (dict, None)]
)
async def test_a_context_can_have_the_role_in_a_field_or_none(tmp_path: Path, schema: Any, context: Any) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        await outer_of(agent.as_node(), None, context=schema).ainvoke(HAT, CONFIG, context=context)
    [call] = lm.calls
    assert bool(call.role) == (context is not None and ROLE in (getattr(context, "role", None), *_values(context)))


def _values(context: Any) -> list[Any]:
    return list(context.values()) if isinstance(context, dict) else []


@dataclass
class Tenants:
    account: int = 7


@pytest.mark.parametrize(
    ("context", "seen"),
    [(GraphContext(account="ana", channel="web", role=ROLE), ("ana", "web")), (Tenants(), (None, None))],
    ids=["ours", "theirs"],
)
async def test_account_and_channel_are_those_of_a_graph_context_alone(
    tmp_path: Path, context: Any, seen: tuple[str | None, str | None]
) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm) as agent:
        await outer_of(agent.as_node(), None, context=type(context)).ainvoke(HAT, CONFIG, context=context)
        [found] = await agent.threads()
    assert (found.account, found.channel) == seen
    assert bool(lm.calls[0].role) == (seen[0] is not None)


IN_A_GRAPH = (
    r"; run the graph again with None as its input and the role that the turn began with \(a call role as its .*, "
    r"or first resume the turn without it: agent\.thread\('t'\)\.resume\(answers, on_role_change='refresh'\)"
)
OTHER = Role("clerk", "Be as polite as the clerk of the seventh harbour.")


@pytest.mark.parametrize(
    ("context", "error", "problem"),
    [(None, RoleRequired, "had a call role, which is now missing"), (OTHER, RoleChanged, "under another role")],
    ids=["none", "another"],
)
async def test_a_resume_without_the_role_is_refused_and_can_be_repeated_with_it(
    tmp_path: Path, context: Role | None, error: Any, problem: str
) -> None:
    async with asking(tmp_path, context=ROLE) as (_, graph, waiting):
        with pytest.raises(error, match=problem + ".*" + IN_A_GRAPH) as caught:
            await graph.ainvoke(approvals(waiting), CONFIG, context=context)
        assert caught.value.turn_id == asked_in(waiting)["turn"]
        assert lines(tmp_path / "effects") == []
        state = await graph.ainvoke(None, CONFIG, context=ROLE)
    assert said(state) == ["hat", "It is paid."]


async def test_a_resume_under_another_role_is_possible_outside_of_the_graph(tmp_path: Path) -> None:
    async with asking(tmp_path, context=ROLE) as (agent, graph, waiting):
        with pytest.raises(RoleRequired):
            await graph.ainvoke(approvals(waiting), CONFIG)
        thread = agent.thread("t")
        await thread.resume({pause.id: Approve() for pause in await thread.pauses()}, on_role_change="refresh")
        assert said(await graph.ainvoke(None, CONFIG)) == ["hat", "It is paid."]
    assert lines(tmp_path / "asked") == ["with the role", "without a role"]


async def test_a_stored_role_that_is_missing_at_the_resume_can_be_set_again(tmp_path: Path) -> None:
    async with paying_agent(tmp_path) as agent:
        await agent.roles.put(Tier.WORKSPACE, ROLE)
        graph = outer_of(agent.as_node(), InMemorySaver())
        waiting = await graph.ainvoke(HAT, CONFIG)
        await agent.roles.delete(Tier.WORKSPACE)
        with pytest.raises(RoleRequired, match=f"had a workspace role, which is now missing{IN_A_GRAPH}"):
            await graph.ainvoke(approvals(waiting), CONFIG)
        await agent.roles.put(Tier.WORKSPACE, ROLE)
        assert said(await graph.ainvoke(None, CONFIG)) == ["hat", "It is paid."]


# --- bad input --------------------------------------------------------------------------------------------------------


def wrong_thread(runtime: Any) -> Any:
    return "t"


async def test_a_node_refuses_what_is_no_graph_no_message_no_thread_and_no_role(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        node = agent.as_node()
        with pytest.raises(FunctionInvalid, match=r"outside of a graph; add it to a StateGraph with add_node\(\)"):
            await node(HAT)
        graph = outer_of(node, None)
        with pytest.raises(InvalidArgument, match=r"runs without a thread_id.*; run it with config="):
            await graph.ainvoke(HAT)
        for messages in ([], [("ai", "Hello.")]):
            empty: Any = {"messages": messages}
            with pytest.raises(InvalidArgument, match=r"no human message in 'messages'; begin the graph with one"):
                await graph.ainvoke(empty, CONFIG)
        picture = HumanMessage([{"type": "image_url", "image_url": {"url": "https://example.com/hat.png"}}])
        with pytest.raises(InvalidArgument, match=r"has parts that are not text; send only text"):
            await graph.ainvoke({"messages": [picture]}, CONFIG)
        with pytest.raises(InvalidArgument, match=r"`text` must be a non-empty string"):
            await graph.ainvoke({"messages": [("user", " ")]}, CONFIG)
        with pytest.raises(InvalidArgument, match=r"no human message in 'other'"):
            await outer_of(agent.as_node(message="other"), None).ainvoke(HAT, CONFIG)
        with pytest.raises(InvalidArgument, match=r"`thread` must return a Thread, got 'str'"):
            await outer_of(agent.as_node(thread=wrong_thread), None).ainvoke(HAT, CONFIG)
        with pytest.raises(RoleInvalid, match=r"`role` must be a Role, got a str"):
            await outer_of(node, None, context=dict).ainvoke(HAT, CONFIG, context={"role": "Be harsh."})
        assert await agent.threads() == ()


@pytest.mark.parametrize("inside", [False, True], ids=["graph", "subgraph"])
async def test_a_pause_in_a_graph_without_a_checkpointer_is_refused_and_its_turn_can_be_resumed(
    tmp_path: Path, inside: bool
) -> None:
    async with paying_agent(tmp_path) as agent:
        graph = outer_of(agent.as_node(), None)
        says = r"waits for a person, but a graph without checkpointer .*; compile the graph with one: .*thread\('t'\)"
        with pytest.raises(FunctionInvalid, match=says) as caught:
            await (outer_of(graph, None) if inside else graph).ainvoke(HAT, CONFIG)
        thread = agent.thread("t")
        turn = await thread.resume({pause.id: Approve() for pause in await thread.pauses()})
        assert (turn.id, turn.text) == (caught.value.turn_id, "It is paid.")
        state = await outer_of(graph, InMemorySaver()).ainvoke(HAT, CONFIG)
        assert [pause["kind"] for pause in asked_in(state)["pauses"]] == ["approval"]


@pytest.mark.parametrize("given", [{"message": 1}, {"answer": " "}, {"thread": "t"}])
def test_wrong_arguments_of_a_node_are_refused_at_once(tmp_path: Path, given: Any) -> None:
    [name] = given
    with pytest.raises(InvalidArgument, match=f"`{name}` must be "):
        scripted_agent(tmp_path, answering()).as_node(**given)


async def test_a_node_of_an_agent_that_is_not_open_says_so(tmp_path: Path) -> None:
    agent = scripted_agent(tmp_path, answering())
    graph = outer_of(agent.as_node(), InMemorySaver())
    with pytest.raises(AgentClosed, match="the agent is not open"):
        await graph.ainvoke(HAT, CONFIG)
    async with agent:
        assert said(await graph.ainvoke(None, CONFIG)) == ["hat", "Fine."]


# --- a tool of LangChain ----------------------------------------------------------------------------------------------


async def test_as_a_tool_the_agent_takes_a_text_and_returns_its_answer(tmp_path: Path) -> None:
    lm = answering("Twenty euros.")
    async with scripted_agent(tmp_path, lm) as agent:
        asked = agent.as_tool("shop", "Sells hats.")
        assert (asked.name, asked.description, list(asked.args)) == ("shop", "Sells hats.", ["text"])
        assert await asked.ainvoke({"text": "What is a hat?"}) == "Twenty euros."
        own = agent.as_tool("shop", "Sells hats.", thread=agent.thread("t"))
        for text in ("One", "Two"):
            await own.ainvoke({"text": text})
        assert len(await agent.thread("t").history()) == 4
        assert len(await agent.threads()) == 2

        async def call(state: MessagesState) -> dict[str, Any]:
            return {"messages": [("ai", await asked.ainvoke({"text": "And with a role?"}))]}

        await outer_of(call, InMemorySaver()).ainvoke(HAT, CONFIG, context=ROLE)
    assert [bool(call.role) for call in lm.calls] == [False, False, False, True]


WAITS = (
    r"^the turn '{}' of thread '.*' waits for a person.*; say that it waits, and do not call the tool again for it; "
    r"the host answers with agent\.thread\('{}'\)\.resume\(\), or uses agent\.as_node\(\)"
)


async def test_a_turn_of_a_tool_that_waits_is_an_error_that_the_model_of_the_outer_agent_reads(tmp_path: Path) -> None:
    asking = AIMessage("", tool_calls=[{"name": "shop", "args": {"text": "hat"}, "id": "1"}])
    async with paying_agent(tmp_path) as agent:
        asked = agent.as_tool("shop", "Sells hats.")
        state = await outer_of(ToolNode([asked]), InMemorySaver()).ainvoke({"messages": [asking]}, CONFIG, context=ROLE)
        read = state["messages"][-1]
        [waiting] = await agent.threads()
        assert (read.status, read.tool_call_id) == ("error", "1")
        assert re.search(WAITS.format(waiting.turn_id, waiting.thread), read.text)
        assert_no_role_leak([state], ROLE.content)
        thread = agent.thread(waiting.thread)
        turn = await thread.resume({pause.id: Approve() for pause in await thread.pauses()}, role=ROLE)
    assert (turn.id, turn.text) == (waiting.turn_id, "It is paid.")


async def test_a_turn_of_a_tool_that_waits_can_be_raised(tmp_path: Path) -> None:
    async with paying_agent(tmp_path) as agent:
        asked = agent.as_tool("shop", "Sells hats.", thread=agent.thread("t"))
        asked.handle_tool_error = False
        with pytest.raises(ThreadPaused, match=WAITS.format(".*", "t")) as first:
            await asked.ainvoke({"text": "hat"})
        with pytest.raises(ThreadPaused, match=WAITS.format(first.value.turn_id, "t")):  # the first one waits
            await asked.ainvoke({"text": "rope"})
        assert (first.value.code, lines(tmp_path / "effects")) == ("thread_paused", [])


@pytest.mark.parametrize(
    ("given", "name"),
    [(("", "Sells."), "name"), (("shop", " "), "description"), ((1, "Sells."), "name")],
)
def test_wrong_arguments_of_a_tool_are_refused_at_once(tmp_path: Path, given: Any, name: str) -> None:
    agent: WorldAgent = scripted_agent(tmp_path, answering())
    with pytest.raises(InvalidArgument, match=f"`{name}` must be a text"):
        agent.as_tool(*given)
    with pytest.raises(InvalidArgument, match="`thread` must be a Thread"):
        agent.as_tool("shop", "Sells.", thread=wrong_thread(None))


@pytest.mark.parametrize(
    ("name", "instead"),
    [("my shop", "my_shop"), ("shop.hats", "shop_hats"), ("é", "_"), ("x" * 65, "x" * 64)],
    ids=["space", "dot", "letter", "long"],
)
def test_a_name_that_model_services_refuse_is_refused_at_once(tmp_path: Path, name: str, instead: str) -> None:
    says = f"`name` must be 1 to 64 letters, .*, which model services refuse; use a name such as '{instead}'"
    with pytest.raises(InvalidArgument, match=says):
        scripted_agent(tmp_path, answering()).as_tool(name, "Sells.")
