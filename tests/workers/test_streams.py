"""What workers and skills say while they say it, for a stream that asks for it, and for no one else (T18, T10)."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, open_pauses, scripted_agent, shape, standing, streamed, taken, to
from support.leaks import canary, traces_of, watch
from support.services import FORMATS, THINKS, Format, Said, agent_at, in_words, service
from support.skill_turns import chosen, package
from worldagent import Approve, Role, Worker, tool
from worldagent.agent import Composed, Thread, Trigger, TurnStream
from worldagent.core import events as ev
from worldagent.graphs import TaskContext
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T18", "T10")

CRITIC = Worker("critic", "You judge what you are given.", tools=("look",))
POET = Worker("poet", "You write a line.")
VERDICT = "It is good, and the second half is better than the first."
WITHHELD = "[role withheld]"


@tool(risk="read_only")
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing at {where}"


@tool(name="look", risk="read_only")
def look_at(where: list[str]) -> str:
    """Look at several places."""
    return f"nothing at {len(where)} places"


def shown(events: Sequence[Any], kind: type[Any] = ev.TaskTextDelta) -> dict[tuple[Any, ...], str]:
    """What a client shows: by task (its last part), step and call the text of the newest attempt."""
    newest: dict[tuple[str, int], int] = {}
    texts: dict[tuple[Any, ...], str] = defaultdict(str)
    for event in events:
        if not isinstance(event, ev.TaskDelta):
            continue
        place = (event.task_id.rpartition("/")[2].partition(":")[2], event.step)
        if event.attempt > newest.get(place, 0):
            newest[place] = event.attempt
            for key in [key for key in texts if key[1:3] == place]:
                del texts[key]
        more = (event.call, event.tool) if isinstance(event, ev.TaskArgumentsDelta) else ()
        texts[type(event), *place, *more] += event.text
    return {key[1:]: text for key, text in texts.items() if key[0] is kind and text}


def task_deltas(events: Sequence[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, ev.TaskDelta)]


def judging(form: Any, verdict: str = VERDICT) -> ScriptedLM:
    """A model whose conversation asks the critic, who looks once and then judges."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "You judge" not in call.system:
            return {"reply": "The critic likes it."} if call.steps else to("critic")
        if call.steps:
            return {"result": verdict}
        return {"result": "Let me look.", **calls(("look", {"where": "home"}), ("look", {"where": "the sea"}))}

    return ScriptedLM(reply, form=form)


@pytest.mark.parametrize("form", ["native", "chat"])
async def test_text_and_arguments_of_a_worker_stream_step_by_step(tmp_path: Path, form: Any) -> None:
    async with scripted_agent(tmp_path, judging(form), workers=[CRITIC], tools=[look]) as agent:
        turn, events = await streamed(agent.thread("t").stream("Well?", subagents=True))
    assert turn.text == standing(events) == "The critic likes it."
    assert shown(events) == {("critic", 0): "Let me look.", ("critic", 1): VERDICT}
    assert shown(events, ev.TaskArgumentsDelta) == {
        ("critic", 0, 0, "look"): '{"where":"home"}' if form == "native" else '{"where": "home"}',
        ("critic", 0, 1, "look"): '{"where":"the sea"}' if form == "native" else '{"where": "the sea"}',
    }
    deltas = task_deltas(events)
    assert len([event for event in deltas if event.step == 1]) > 5, "the text came at once"
    [begun] = [event for event in events if isinstance(event, ev.TaskStarted)]
    [ended] = [event for event in events if isinstance(event, ev.TaskEnded)]
    assert {event.task_id for event in deltas} == {begun.task_id}
    assert events.index(begun) < events.index(deltas[0]) < events.index(deltas[-1]) < events.index(ended)
    first_call = next(event for event in events if isinstance(event, ev.CallStarted))
    assert first_call.call_id == f"{begun.task_id}/act.0.0:look"
    assert events.index(first_call) > max(events.index(event) for event in deltas if event.step == 0)


@pytest.mark.parametrize("wanted", FORMATS)
async def test_a_service_streams_what_a_worker_thinks_says_and_asks_for(tmp_path: Path, wanted: Format) -> None:
    asked = (("look", {"where": "the quay at night"}), ("look", {"where": "home"}))
    said = [
        Said("", (("critic", {"request": "Judge."}),), "Someone else has to judge."),
        Said("Let me look there.", asked, "The quay has to be seen."),
        Said(VERDICT, (), "Now it is clear."),
        Said("It is good."),
    ]
    with service(*said) as stub:
        more = {"workers": [CRITIC], "tools": [look], "settings": THINKS}
        async with agent_at(tmp_path, stub, wanted, **more) as agent:
            turn, events = await streamed(agent.thread("t").stream("Well?", subagents=True))
    assert turn.text == standing(events) == "It is good."
    assert stub.streamed == [True] * 4
    assert shown(events) == {("critic", 0): "Let me look there.", ("critic", 1): VERDICT}
    assert shown(events, ev.TaskReasoningDelta) == {("critic", 0): said[1].thinking, ("critic", 1): said[2].thinking}
    arguments = shown(events, ev.TaskArgumentsDelta)
    assert [(key, json.loads(text)) for key, text in sorted(arguments.items())] == [
        (("critic", 0, place, name), given) for place, (name, given) in enumerate(asked)
    ]
    thoughts = "".join(event.text for event in events if isinstance(event, ev.ReasoningDelta))
    assert thoughts == said[0].thinking


async def test_a_stream_that_does_not_ask_sees_the_same_turn_without_them(tmp_path: Path) -> None:
    answers = (Said("", (("critic", {"request": "Judge."}),)), Said(VERDICT), Said("It is good."))
    seen: list[Any] = []
    for subagents in (False, True):
        with service(*answers) as stub:
            home = tmp_path / str(subagents)
            async with agent_at(home, stub, "chat", workers=[CRITIC], tools=[look]) as agent:
                turn, events = await streamed(agent.thread("t").stream("Well?", subagents=subagents))
        assert bool(task_deltas(events)) == subagents
        assert stub.streamed == [True, subagents, True], "a worker's model streams only where it is asked for"
        own = {"turn_id", "at", "seconds"}
        plain = [each.model_dump(exclude=own) for each in events if not isinstance(each, ev.UnnumberedEvent)]
        assert [each["seq"] for each in plain] == list(range(1, len(plain) + 1))
        seen.append([turn.text, json.loads(json.dumps(plain, default=str).replace(turn.id, "TURN"))])
    assert seen[0] == seen[1]


async def test_nothing_of_them_is_recorded_or_replayed(tmp_path: Path) -> None:
    line = "Nine herons stood where the tide had been."
    lm = ScriptedLM([to("poet"), {"result": line}, {"reply": "A line about birds."}])
    async with scripted_agent(tmp_path, lm, workers=[POET]) as agent:
        thread = agent.thread("t")
        turn, events = await streamed(thread.stream("A line!", key="k", subagents=True))
        _, again = await streamed(thread.stream("A line!", key="k", subagents=True))
        again += await taken(agent.events(turn.id))
    assert shown(events) == {("poet", 0): line}
    assert all("seq" not in json.loads(each.model_dump_json()) for each in task_deltas(events))
    assert [ev.parse_event(each.model_dump_json()) for each in task_deltas(events)] == task_deltas(events)
    assert again
    assert not task_deltas(again)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"task_text_delta" not in kept


async def test_each_stream_of_a_turn_gets_what_it_asked_for(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        begun.set()
        await go.wait()
        yield "[[ ## result ## ]]\nA li"
        yield "ne.\n\n[[ ## completed ## ]]"

    lm = ScriptedLM([to("poet"), slow(), {"reply": "There."}])
    async with scripted_agent(tmp_path, lm, workers=[POET]) as agent:
        thread = agent.thread("t")
        first = asyncio.create_task(streamed(thread.stream("A line!", key="k", subagents=True)))
        await asyncio.wait_for(begun.wait(), 20)
        second = asyncio.create_task(streamed(thread.stream("A line!", key="k")))
        third = thread.stream("A line!", key="k", subagents=True)
        async with third:
            go.set()
            late = await taken(third)
        (turn, events), (_, others) = await first, await second
    assert shown(events) == shown(late) == {("poet", 0): "A line."}
    assert not task_deltas(others)
    assert turn.text == standing(others) == standing(late) == "There."


async def test_workers_side_by_side_are_told_apart_by_their_tasks(tmp_path: Path) -> None:
    names, turns = [f"poet{number}" for number in range(4)], asyncio.Barrier(4)

    async def pieces(name: str) -> AsyncIterator[str]:
        for piece in ["[[ ## result ## ]]\n", *(f"{name} {word}. " for word in "abc")]:
            await turns.wait()  # so that their pieces alternate
            yield piece

    def reply(call: ScriptedCall) -> Any:
        if "message" in call.fields:
            asked = calls(*((name, {"request": "Go."}) for name in names))
            return {"reply": "All four."} if call.steps else {"reply": "", **asked}
        return pieces(call.system.split("You are ")[1].split(".")[0])

    workers = [Worker(name, f"You are {name}.") for name in names]
    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=workers) as agent:
        turn, events = await streamed(agent.thread("t").stream("Lines!", subagents=True))
    assert turn.text == standing(events) == "All four."
    assert shown(events) == {(name, 0): f"{name} a. {name} b. {name} c." for name in names}
    order = [event.task_id for event in task_deltas(events)]
    assert len(set(order)) == 4
    assert len(set(order[:4])) == 4, "their pieces did not alternate"
    started = {event.task_id: event.label for event in events if isinstance(event, ev.TaskStarted)}
    assert {started[task] for task in order} == set(names)


async def test_an_attempt_replaces_what_the_step_has_sent(tmp_path: Path) -> None:
    async def cut() -> AsyncIterator[str]:
        yield "[[ ## result ## ]]\nOnce upon a"
        raise ConnectionError("gone")

    fallback = ScriptedLM([{"result": "Dusk came early."}], model="other")
    lm = ScriptedLM([to("poet"), cut(), cut(), {"reply": "There."}])
    poet = Worker("poet", "You write a line.", fallbacks=("other",))
    settings = {"model_attempts": 2}
    async with scripted_agent(tmp_path, lm, workers=[poet], models={"other": fallback}, settings=settings) as agent:
        turn, events = await streamed(agent.thread("t").stream("A line!", subagents=True))
    assert turn.text == "There."
    by_attempt: dict[int, str] = defaultdict(str)
    for event in task_deltas(events):
        by_attempt[event.attempt] += event.text
    assert by_attempt == {0: "Once upon a", 1: "Once upon a", 2: "Dusk came early."}
    assert [event.attempt for event in task_deltas(events) if not event.text] == [1, 2], "it is withdrawn at once"
    assert shown(events) == {("poet", 0): "Dusk came early."}
    assert not [event for event in events if isinstance(event, ev.TextReplaced)]


async def test_text_without_a_use_is_withdrawn_or_of_an_earlier_step(tmp_path: Path) -> None:
    replies: list[Any] = [
        "[[ ## result ## ]]\nHm.\n\n[[ ## calls ## ]]\nnone of these",  # cannot be read
        {"result": "Let me try.", **calls(("fly", {"where": "up"}))},  # there is no such tool
        {"result": VERDICT},
    ]
    lm = ScriptedLM([to("critic"), *replies, {"reply": "Good."}])
    critic = Worker("critic", "You judge what you are given.", tools=("look",), retries=2)
    async with scripted_agent(tmp_path, lm, workers=[critic], tools=[look]) as agent:
        _, events = await streamed(agent.thread("t").stream("Well?", subagents=True))
    assert shown(events) == {("critic", 1): "Let me try.", ("critic", 2): VERDICT}
    assert not shown(events, ev.TaskArgumentsDelta), "a name that the model made up is not sent"


@pytest.mark.requirement("R7", "R16")
@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize("tools", ["native", "json"])
async def test_what_a_task_repeats_of_its_own_role_is_withheld(
    tmp_path: Path, wanted: Format, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")
    own = canary(200, seed=f"{wanted} {tools}")
    loud = f"I go by this: {own} That is all."
    given = {"where": loud}
    said = [Said(loud, (("look", given),), loud), Said(loud, (), loud)]
    if tools == "json":
        asked = json.dumps([{"tool": "look", "arguments": given}])
        said = [in_words(result=f"{loud}\n\n[[ ## calls ## ]]\n{asked}"), in_words(result=loud)]

    async def lead(ctx: TaskContext) -> str:
        ask = {"worker": "critic", "request": "Judge."}
        return str((await ctx.task("subagent", ask, role=Role("own", own))).text)

    with service(*said) as stub, watch(tmp_path / "h") as seen:
        more = {"workers": [CRITIC], "tools": [look], "settings": {**THINKS, "model_tools": tools}}
        async with agent_at(seen.home, stub, wanted, shapes=[shape(lead, "lead")], **more) as agent:
            stream = agent.thread("t").stream_task("lead", {}, subagents=True, key="k")
            turn, events = await streamed(stream)
            seen.kept.append([turn, events])
            seen.assert_clean(*traces_of(own))
    assert all(own in json.dumps(body) for body in stub.requests), "the role never reached the model"
    for kind, count in ((ev.TaskTextDelta, 2), (ev.TaskArgumentsDelta, 1), (ev.TaskReasoningDelta, 2)):
        texts = list(shown(events, kind).values())
        assert len(texts) == (0 if tools == "json" and kind is ev.TaskReasoningDelta else count)
        assert all(WITHHELD in text for text in texts)
    assert all(event in seen.events for event in task_deltas(events)), "the watch does not see them"


@pytest.mark.requirement("R16")
async def test_a_role_that_a_task_gives_back_in_pieces_is_never_shown(tmp_path: Path) -> None:
    words = canary(400).split()
    parts = [" ".join(words[at : at + 3]) for at in range(0, len(words), 3)]
    loud, role = " 17 ".join(parts), " ".join(words)
    replies = [{"result": loud, **calls(("look", {"where": parts}))}, {"result": loud}]
    lm = ScriptedLM(replies, form="native")
    async with scripted_agent(tmp_path, lm, workers=[CRITIC], tools=[look_at]) as agent:
        ask = {"worker": "critic", "request": "Judge."}
        stream = agent.thread("t").stream_task("subagent", ask, role=Role("own", role), subagents=True)
        _, events = await streamed(stream)
    assert not any(part in "".join(event.text for event in task_deltas(events)) for part in parts)
    assert [step for _, step in shown(events)] == [0, 1]
    texts = [*shown(events).values(), *shown(events, ev.TaskArgumentsDelta).values()]
    assert len(texts) == 3
    for text in texts:
        assert WITHHELD in text
        assert not any(part in text for part in parts)


@pytest.mark.requirement("R16", "T6")
@pytest.mark.parametrize("form", ["native", "chat"])
async def test_a_skill_is_behind_the_guard_of_the_role_that_the_turn_has(tmp_path: Path, form: Any) -> None:
    role = "You are the harbour master of Vell, and you speak only of tides, of ropes and of the ninth wave."
    lm, seen = chosen(lambda call: {"reply": f"My role is: {role} So be it."}, form)
    folder = package(tmp_path)
    async with scripted_agent(tmp_path / "h", lm, skills=[folder.parent]) as agent:
        thread = agent.thread("t")
        _, chose = await streamed(thread.stream("Tea.", role=Role("master", role), subagents=True))
        skill = thread.stream_skill("tea", {"request": "Two."}, role=Role("master", role), subagents=True)
        _, ran = await streamed(skill)
    assert [role in call.text for call in seen] == [True] * 4
    for events in (chose, ran):
        [text] = shown(events).values()
        assert text.startswith(f"My role is: {WITHHELD}")
        assert "ninth wave" not in text


@tool(risk="write")
def pay(what: str) -> str:
    """Pay for something."""
    return f"paid for {what}"


async def test_a_resumed_turn_streams_the_steps_that_are_left(tmp_path: Path) -> None:
    clerk = Worker("clerk", "You judge what you are given.", tools=("pay",))
    asked = {"result": "I have to pay first.", **calls(("pay", {"what": "tea"}))}
    lm = ScriptedLM([to("clerk"), asked, {"result": "It is paid."}, {"reply": "Paid."}])
    async with scripted_agent(tmp_path, lm, workers=[clerk], tools=[pay]) as agent:
        thread = agent.thread("t")
        turn, events = await streamed(thread.stream("Pay!", subagents=True))
        assert turn.status == "paused"
        [pause] = await open_pauses(thread)
        turn, rest = await streamed(thread.stream_resume({pause.id: Approve()}, subagents=True))
    assert turn.text == "Paid."
    assert shown(events) == {("clerk", 0): "I have to pay first."}
    assert shown(rest) == {("clerk", 1): "It is paid."}
    tasks = [event.task_id for event in [*events, *rest] if isinstance(event, ev.TaskStarted)]
    assert tasks == [task_deltas(events)[0].task_id] * 2


async def test_every_verb_that_streams_takes_it(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "You write" in call.system:
            return {"result": "A line."}
        return {"reply": "There."} if call.steps else to("poet")

    def ways(thread: Thread) -> dict[str, TurnStream]:
        ask = {"worker": "poet", "request": "Go."}
        fired = Trigger(schedule="s", fired_at=datetime(2030, 1, 1, tzinfo=UTC))
        return {
            "message": thread.stream("A line!", subagents=True),
            "edit": thread.stream_edit("Two lines!", subagents=True),
            "replay": thread.stream_replay(subagents=True),
            "task": thread.stream_task("subagent", ask, subagents=True),
            "skill": thread.stream_skill(Composed("Be brief.", params=ask, name="s"), subagents=True),
            "schedule": thread.stream_scheduled(fired, subagents=True),
        }

    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[POET]) as agent:
        for name, stream in ways(agent.thread("t")).items():
            _, events = await streamed(stream)
            assert list(shown(events).values()) == ["A line."], name


async def test_a_result_with_a_type_of_its_own_streams_no_text(tmp_path: Path) -> None:
    counter = Worker("counter", "You count.", tools=("look",), output=int)
    lm = ScriptedLM([calls(("look", {"where": "here"})), {"result": 7}])
    async with scripted_agent(tmp_path, lm, workers=[counter], tools=[look]) as agent:
        ask = {"worker": "counter", "request": "How many?"}
        turn, events = await streamed(agent.thread("t").stream_task("subagent", ask, subagents=True))
    assert turn.result.text == "7"
    assert {type(event) for event in task_deltas(events)} == {ev.TaskArgumentsDelta}
