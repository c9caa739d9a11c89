"""Work in the background: dispatched by a model or by host code, and reported to its conversation once (T17)."""

import asyncio
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from pydantic import BaseModel

from support.agents import approving, scripted_agent
from support.background import READER, Library, settled
from support.databases import Engine, made, on_every_database, storage_of
from worldagent import Approve, Role, Rule, Settings, Worker, WorldAgent, tool
from worldagent.agent import Background, Say, Task, Thread
from worldagent.core import events as ev
from worldagent.core.errors import KeyReused, LimitReached, NothingToSteer, NotSteerable, RoleNotStorable
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Policy
from worldagent.memory.inbox import Inbox
from worldagent.memory.reports import BackgroundTasks
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T17")


async def texts(thread: Thread) -> list[tuple[str, str]]:
    return [(each.kind, str(each.body.get("text", ""))) for each in await thread.history()]


async def test_a_model_sends_off_a_worker_and_a_turn_of_its_own_reads_the_report(tmp_path: Path) -> None:
    library = Library()
    async with library.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        turn = await thread.converse("What is Moby Dick about?")
        assert turn.text == "I let it be read."
        await asyncio.wait_for(library.begun.wait(), 20)
        [work] = await agent.background_tasks(thread)
        assert (work.name, (await work.state()).status) == ("reader", "running")
        assert work.id in library.said[1]
        library.may.set()
        assert (await work.wait()).status == "done"
        await settled(agent)
        said = await texts(thread)
        report = f"The background task {work.id} (reader) is done. Its result:\nIt is about whales."
        assert said[-2:] == [("message", report), ("answer", "Whales!")]
        assert [kind for kind, _ in said].count("message") == 2
        told = (await thread.history())[-2]
        assert told.author == "worker:reader"
        assert told.body["untrusted"] == ["worker:reader"]
        assert (await thread.state()).status == "done"  # type: ignore[union-attr]
        state = await work.state()
        assert (state.status, state.usage.calls) == ("done", 2)
    assert library.looked == 1


async def test_a_running_turn_reads_the_report_at_its_next_step(tmp_path: Path) -> None:
    library = Library()
    library.calls = [
        {"tool": "background_start", "arguments": library.dispatch},
        {"tool": "wait", "arguments": {}},
    ]
    library.may.set()
    ended = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for the report."""
        await asyncio.wait_for(ended.wait(), 20)
        return "waited"

    policy = Policy(rules=(approving("look", "wait"),))
    async with library.agent(tmp_path, tools=[library.look, wait], policy=policy) as agent:
        thread = agent.thread("t", account="ana")
        reports = agent.events(account="ana")
        async with thread.stream("What is Moby Dick about?") as stream:
            async with asyncio.timeout(20):
                while (event := await anext(reports)).type != "background_reported":
                    pass
            ended.set()
            events = [event async for event in stream]
        [work] = await agent.background_tasks(thread)
        assert (event.task, event.name, event.status, event.last) == (work.id, "reader", "done", False)
        assert stream.turn.text == "Whales!"
        [taken] = [each for each in events if isinstance(each, ev.MessageTaken)]
        assert (taken.kind, taken.author) == ("report", "worker:reader")
        await settled(agent)
        kinds = [kind for kind, _ in await texts(thread)]
        assert (kinds.count("word"), kinds.count("message")) == (1, 1)


async def test_host_code_sends_off_a_conversation_a_task_and_a_repeat_is_the_same(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    async with library.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        given = Task("subagent", {"worker": "reader", "request": "Read Moby Dick."})
        work = await agent.background(given, thread=thread, report="next", key="books")
        assert await agent.background(given, thread=thread, report="next", key="books") == work
        with pytest.raises(KeyReused):
            await agent.background(Say("Hello"), thread=thread, key="books")
        turn = await work.wait()
        assert turn.result.text == "It is about whales."
        await settled(agent)
        assert await texts(thread) == []  # it waits for the next turn
        library.dispatch = {}
        turn = await thread.converse("dispatched?")
        assert turn.text == "Whales!"
        assert [kind for kind, _ in await texts(thread)] == ["message", "word", "answer"]
        with pytest.raises(NothingToSteer):
            await work.steer("Hurry.")
        assert not await work.cancel()
    assert library.looked == 1


async def test_roles_that_cannot_be_stored_are_refused(tmp_path: Path) -> None:
    library = Library()
    async with library.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        with pytest.raises(RoleNotStorable):
            await agent.background(Say("Hello", role=Role("critic", "Be harsh.")), thread=thread)
        thread.role.set(Role("critic", "Be harsh."))
        with pytest.raises(RoleNotStorable, match="role=None"):
            await agent.background(Say("Hello"), thread=thread)
        assert await agent.background_tasks(thread) == ()


async def test_work_of_a_model_has_no_role_and_work_of_host_code_the_stored_ones(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    async with library.agent(tmp_path) as agent:
        await agent.roles.put("workspace", Role("pirate", "Talk as a pirate of the seven seas."))
        thread = agent.thread("t", account="ana")
        await thread.converse("What is Moby Dick about?")
        [work] = await agent.background_tasks(thread)
        assert (await work.wait()).role_tiers == ()
        assert not any("seven seas" in text for text in library.read)
        await settled(agent)
        assert "seven seas" in library.said[-1]  # the turn that the report began
        given = Task("subagent", {"worker": "reader", "request": "Read Moby Dick."})
        own = await agent.background(given, thread=thread, report="event")
        assert (await own.wait()).role_tiers == ("workspace",)


async def test_an_approval_is_told_and_answered_on_the_thread_of_the_work(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    async with library.agent(tmp_path, policy=Policy()) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("What is Moby Dick about?")
        [work] = await agent.background_tasks(thread)
        turn = await work.wait()
        assert turn.status == "paused"
        await settled(agent)
        assert "waits for a person: approval of look." in (await texts(thread))[-2][1]
        library.calls = []
        await work.thread.resume({turn.pauses[0].id: Approve()})
        await settled(agent)
        messages = [text for kind, text in await texts(thread) if kind == "message"]
        assert [text.count("waits for") for text in messages] == [0, 1, 0]
        assert "is done" in messages[2]
    assert library.looked == 1


async def test_a_list_of_threads_has_those_of_tasks_only_where_it_looks_for_them(tmp_path: Path) -> None:
    library = Library()
    async with library.agent(tmp_path, policy=Policy()) as agent:
        thread = agent.thread("t", account="ana")
        work = await agent.background(Task("subagent", {"worker": "reader", "request": "Read."}), thread=thread)
        assert (await work.wait()).status == "paused"
        await settled(agent)
        own = work.thread.scope.thread
        assert [each.thread for each in await agent.threads()] == ["t"]
        assert own in [each.thread for each in await agent.threads(status="paused")]
        assert {each.thread for each in await agent.threads(archived=None)} >= {"t", own}
        await work.thread.fork(to=f"{own}.2")
        assert f"{own}.2" in [each.thread for each in await agent.threads()], "it is a conversation again"


async def test_a_model_looks_says_something_and_cancels(tmp_path: Path) -> None:
    library = Library()
    async with library.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("What is Moby Dick about?")
        await asyncio.wait_for(library.begun.wait(), 20)
        [work] = await agent.background_tasks(thread)
        library.calls = [
            {"tool": "background_check", "arguments": {}},
            {"tool": "background_say", "arguments": {"task": work.id, "text": "Only the end."}},
        ]
        await thread.converse("How far is it?")
        assert "running" in library.said[-1]
        assert "It reads this at its next step." in library.said[-1]
        library.may.set()
        await work.wait()
        await settled(agent)
        assert "Only the end." in library.read[-1]
        word = next(each for each in await work.thread.history() if each.kind == "word")
        assert word.author == "converse"
        library.calls = [{"tool": "background_say", "arguments": {"task": work.id, "text": "Thanks."}}]
        await thread.converse("Thank it.")
        assert "It did not read this: it is done." in library.said[-1]
        assert library.said[-1].count("is done. Its result") == 2  # the report, and the report once more


async def test_a_message_that_a_task_would_not_read_is_refused(tmp_path: Path) -> None:
    library = Library()
    async with library.agent(tmp_path, settings={"account_limits": {"bytes": 2000}}) as agent:
        thread = agent.thread("t", account="ana")
        request = Task("subagent", {"worker": "reader", "request": "Read."})
        work = await agent.background(request, thread=thread, report="event")
        await asyncio.wait_for(library.begun.wait(), 20)
        [of_bob] = await agent.background_tasks(agent.thread("t", account="bob"))
        assert of_bob.account == "ana"
        with pytest.raises(NotSteerable, match="another account"):
            await of_bob.steer("Stop.")
        await work.steer("The end.", key="k")
        await work.steer("The end.", key="k")
        with pytest.raises(KeyReused):
            await work.steer("The beginning.", key="k")
        with pytest.raises(LimitReached):
            await work.steer("more " * 500)
        library.may.set()
        await work.wait()
        await work.steer("The end.", key="k")  # a repeat of what it has read
        with pytest.raises(NothingToSteer, match="is done"):
            await work.steer("Thanks.")
        assert library.read[-1].count("The end.") == 1
        assert await work.thread.queued() == ()


async def test_a_message_to_a_task_that_begins_and_ends_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library()
    library.may.set()
    put = Inbox.put

    async def put_late(*given: Any, **how: Any) -> Any:
        monkeypatch.setattr(Inbox, "put", put)
        async with library.agent(tmp_path) as other:  # a process that begins what waits
            await settled(other)
        return await put(*given, **how)

    async with library.agent(tmp_path, settings={"begin_queued": False}) as agent:
        thread = agent.thread("t", account="ana")
        request = Task("subagent", {"worker": "reader", "request": "Read."})
        task = await agent.background(request, thread=thread, report="event")
        monkeypatch.setattr(Inbox, "put", put_late)
        with pytest.raises(NothingToSteer, match="is done"):
            await task.steer("The end.")
        assert await task.thread.queued() == ()


async def test_a_model_looks_after_the_tasks_of_its_account_alone(tmp_path: Path) -> None:
    library = Library()
    async with library.agent(tmp_path) as agent:
        await agent.thread("t", account="ana").converse("What is Moby Dick about?")
        await asyncio.wait_for(library.begun.wait(), 20)
        thread = agent.thread("t", account="bob")
        [work] = await agent.background_tasks(thread)
        library.calls = [
            {"tool": "background_check", "arguments": {}},
            {"tool": "background_cancel", "arguments": {"task": work.id}},
        ]
        await thread.converse("End all that runs.")
        assert f"there is no background task {work.id!r}; they are: none" in library.said[-1].replace("\\'", "'")
        assert (await work.state()).status == "running"
        library.may.set()


async def test_a_cancelled_work_is_told_without_a_turn(tmp_path: Path) -> None:
    library = Library()
    async with library.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("What is Moby Dick about?")
        await asyncio.wait_for(library.begun.wait(), 20)
        [work] = await agent.background_tasks(thread)
        assert await work.cancel()
        assert (await work.wait()).status == "cancelled"
        await settled(agent)
        assert [kind for kind, _ in await texts(thread)].count("message") == 1
        await thread.converse("And?")
        assert "was cancelled" in library.said[-1]


@pytest.mark.parametrize("how", ["cancel", "remove"])
async def test_a_thread_that_is_cancelled_or_removed_ends_its_work(tmp_path: Path, how: str) -> None:
    library = Library()
    async with library.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("What is Moby Dick about?")
        await asyncio.wait_for(library.begun.wait(), 20)
        [work] = await agent.background_tasks(thread)
        if how == "cancel":
            assert await thread.cancel()
            assert (await work.wait()).status == "cancelled"
        else:
            assert await agent.upkeep.remove("t")
            assert await work.thread.state() is None
        await settled(agent)
        state = await thread.state()
        assert (state is None) == (how == "remove")
        assert await thread.queued() == ()


async def test_a_conversation_and_an_account_have_so_much_work_at_a_time(tmp_path: Path) -> None:
    library = Library()
    given = Task("subagent", {"worker": "reader", "request": "Read Moby Dick."})
    async with library.agent(tmp_path, settings={"background_of_thread": 2, "background_of_account": 3}) as agent:
        one, other = agent.thread("t", account="ana"), agent.thread("u", account="ana")
        for _ in range(2):
            await agent.background(given, thread=one)
        with pytest.raises(LimitReached, match="this conversation has 2 background tasks"):
            await agent.background(given, thread=one)
        await agent.background(given, thread=other)
        with pytest.raises(LimitReached, match="this account has 3 background tasks"):
            await agent.background(given, thread=other)
        await agent.background(given, thread=agent.thread("u", account="bea"))
        library.calls = [{"tool": "background_start", "arguments": library.dispatch}]
        await one.converse("dispatched?")
        assert "limit_reached" in library.said[-1]


async def test_only_what_is_declared_for_it_works_in_the_background(tmp_path: Path) -> None:
    quiet = Worker("quiet", "You are quiet.", "is quiet")
    hidden = Worker("hidden", "You hide.", "hides", background=True, offered=False)
    library = Library()
    library.calls = [
        {"tool": "background_start", "arguments": {"name": name, "request": "Go."}}
        for name in ("quiet", "hidden", "nobody")
    ]
    async with library.agent(tmp_path, workers=[READER, quiet, hidden]) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("dispatched?")
        read = library.said[-1].replace("\\'", "'")
        assert "'quiet' cannot work in the background" in read
        assert "'nobody' cannot work in the background" in read
        assert "those that can are: reader" in read
        assert "'hidden' is not among your tools" in read
        assert await agent.background_tasks(thread) == ()


async def test_reports_begin_only_so_many_turns_in_a_row(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    asked = 0

    def reply(call: ScriptedCall) -> dict[str, Any]:
        nonlocal asked
        if "request" in call.fields:
            return library._reply(call)
        if call.steps:
            return {"reply": "I sent it off."}
        asked += 1
        arguments = {"name": "reader", "request": f"Read it, {asked}."}
        return {"reply": "", "calls": [{"tool": "background_start", "arguments": arguments}]}

    library.lm = ScriptedLM(reply)
    after = approving("look", after=("worker:reader",), arguments={"book": "Moby*"})
    policy = Policy(rules=(after, approving("look")))
    async with library.agent(tmp_path, policy=policy, settings={"report_chain": 2}) as agent:
        thread = agent.thread("t", account="ana")
        events = agent.events(account="ana")
        await thread.converse("Read it, always.")
        found: list[bool] = []
        async with asyncio.timeout(30):
            while len(found) < 3:
                event = await anext(events)
                found += [event.last] if isinstance(event, ev.BackgroundReported) else []
        await settled(agent)
        assert found == [False, False, True]
        assert [kind for kind, _ in await texts(thread)].count("message") == 3
        assert [each.kind for each in await thread.queued()] == ["report"]  # for the next message of the person


BOUNDED = Worker("judge", "You judge books.", "judges a book", tools=("search",), output=bool, background=True)


@pytest.mark.parametrize(("worker", "marks"), [("judge", None), ("reader", ["search", "worker:reader"])])
async def test_a_report_has_the_marks_of_its_worker(tmp_path: Path, worker: str, marks: list[str] | None) -> None:
    @tool(risk="read_only", untrusted=True)
    async def search() -> str:
        """Search."""
        return "Strangers like it."

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            done = {"result": True if worker == "judge" else "It is good."}
            return done if call.steps else {"calls": [{"tool": "search", "arguments": {}}]}
        if call.steps or "background task" in str(call.fields["message"]):
            return {"reply": "Well."}
        arguments = {"name": worker, "request": "Judge it."}
        return {"reply": "", "calls": [{"tool": "background_start", "arguments": arguments}]}

    reader = Worker("reader", "You read.", "reads", tools=("search",), background=True)
    given: dict[str, Any] = {"tools": [search], "workers": [reader, BOUNDED], "background": True}
    async with scripted_agent(tmp_path, ScriptedLM(reply), **given) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("Is it good?")
        [task] = await agent.background_tasks(thread)
        await task.wait()
        await settled(agent)
        told = [each for each in await thread.history() if each.kind == "message"][-1]
        assert told.author == f"worker:{worker}"
        assert told.body.get("untrusted") == marks
        assert ("true" if worker == "judge" else "It is good.") in told.body["text"].lower() or marks


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        ([Rule(decision="refuse", function="reader", caller="converse")], "not offered"),
        ([Rule(decision="ask", function="reader", caller="converse")], "paused"),
        ([Rule(decision="refuse", function="look", caller="reader")], "done"),
        ([Rule(decision="ask", function="look", caller="reader")], "paused"),
    ],
)
async def test_a_task_passes_the_gate_as_it_would_in_the_foreground(
    tmp_path: Path, rules: list[Rule], status: str
) -> None:
    """The same rules decide about the same caller, whether the conversation waits for the worker or not."""
    for background in (True, False):
        library = Library()
        library.may.set()
        refused = 0

        def reply(call: ScriptedCall, library: Library = library, background: bool = background) -> dict[str, Any]:
            nonlocal refused
            if "request" in call.fields:
                if call.steps:
                    refused += library.looked == 0
                    return {"result": "It is about whales."}
                return {"calls": [{"tool": "look", "arguments": {"book": "Moby Dick"}}]}
            if call.steps or "background task" in str(call.fields["message"]):
                return {"reply": "Well."}
            arguments = {"name": "reader", "request": "Read it."} if background else {"request": "Read it."}
            return {
                "reply": "",
                "calls": [{"tool": "background_start" if background else "reader", "arguments": arguments}],
            }

        library.lm = ScriptedLM(reply)
        home = tmp_path / str(background)
        async with library.agent(home, policy=Policy(rules=(*rules, approving("look")))) as agent:
            thread = agent.thread("t", account="ana")
            turn = await thread.converse("Read it.")
            if background:
                tasks = await agent.background_tasks(thread)
                await settled(agent)
                assert [(await each.state()).status for each in tasks] == ([] if status == "not offered" else [status])
            else:
                assert turn.status == ("paused" if status == "paused" else "done")
        assert library.looked == 0
        assert refused == (status == "done")


async def test_a_task_can_use_what_its_turn_has_left(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    async with library.agent(tmp_path, settings={"turn_calls": 2}) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("What is Moby Dick about?")  # one of two calls
        [task] = await agent.background_tasks(thread)
        await settled(agent)
        state = await task.state()
        assert (state.status, state.code) == ("failed", "limit_reached")  # `subagent` and `look` would be two more
        assert library.looked == 0


async def test_a_task_that_an_agent_leaves_goes_on_with_the_next_one(tmp_path: Path) -> None:
    library = Library()
    library.may.set()
    thinking = asyncio.Event()

    async def think(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            thinking.set()
            await asyncio.Event().wait()
        return library._reply(call)

    own, library.lm = library.lm, ScriptedLM(think)
    async with library.agent(tmp_path) as agent:
        await agent.thread("t", account="ana").converse("What is Moby Dick about?")
        await asyncio.wait_for(thinking.wait(), 20)
        [task] = await agent.background_tasks(agent.thread("t", account="ana"))
    library.lm = own
    async with library.agent(tmp_path) as agent:
        thread = agent.thread("t", account="ana")
        assert await agent.background_tasks(thread) != (task,)  # a handle belongs to its agent
        [task] = await agent.background_tasks(thread)
        assert (await task.wait()).status == "done"
        await settled(agent)
        assert (await texts(thread))[-1] == ("answer", "Whales!")
    assert library.looked == 1


class Count(BaseModel):
    """What the shape `count` takes."""

    text: str


class Counted(BaseModel):
    """What it gives."""

    words: int


async def test_a_shape_and_a_skill_work_in_the_background(tmp_path: Path) -> None:
    async def count(params: Count, ctx: TaskContext) -> Counted:
        return Counted(words=len(params.text.split()))

    folder = tmp_path / "skills" / "review"
    folder.mkdir(parents=True)
    front = (
        '---\nname: review\ndescription: Reviews a text.\nmetadata:\n  background: "true"\n---\n\nReview the text.\n'
    )
    (folder / "SKILL.md").write_text(front)
    calls = [
        {"name": "count", "params": {"text": "one two three"}},
        {"name": "review", "request": "Review it."},
    ]

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "message" not in call.fields:
            return {"reply": "It is good.", "result": "It is good."}
        if calls:
            return {"reply": "", "calls": [{"tool": "background_start", "arguments": calls.pop(0)}]}
        return {"reply": "Well."}

    shape = Shape("count", Count, Counted, count, description="counts words", background=True)
    given: dict[str, Any] = {"shapes": [shape], "skills": [tmp_path / "skills"], "background": Background("next")}
    async with scripted_agent(tmp_path / "home", ScriptedLM(reply), **given) as agent:
        await agent.roles.put("workspace", Role("pirate", "Talk as a pirate of the seven seas."))
        thread = agent.thread("t", account="ana")
        await thread.converse("Review it, and count its words.")
        tasks = await agent.background_tasks(thread)
        assert [each.name for each in tasks] == ["count", "review"]
        assert [(await each.wait()).role_tiers for each in tasks] == [(), ()]  # a skill has none in the background
        await settled(agent)
        told = [each.text for each in await thread.queued()]  # besides what the turn that sent them off read
        told += [text for kind, text in await texts(thread) if kind == "word"]
        reports = {text.partition("(")[2].partition(")")[0]: text for text in told}
        assert reports["count"].endswith('is done. Its result:\n{"words":3}')
        assert reports["review"].endswith("It is good.")


@on_every_database
@pytest.mark.parametrize("names", [("t", "t"), ("t", "u")])
async def test_tasks_that_are_dispatched_at_once_cannot_pass_a_limit(
    tmp_path: Path, engine: Engine, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction waits, after it has counted, for the other one to count: one of them cannot, until the end."""
    running, counted = BackgroundTasks.running, Barrier(2)

    def counting(self: BackgroundTasks, transaction: Any, scope: Any) -> tuple[int, int]:
        found = running(self, transaction, scope)
        with suppress(BrokenBarrierError):
            counted.wait(0.5)
        return found

    monkeypatch.setattr(BackgroundTasks, "running", counting)
    library, home = Library(), made(engine, tmp_path / "home")
    which = "background_of_thread" if names[0] == names[1] else "background_of_account"
    given: dict[str, Any] = {"storage": storage_of(home), "settings": Settings(model_attempts=1, **{which: 1})}
    async with WorldAgent("novel", lm=library.lm, background=True, **given) as agent:
        asked = [agent.background(Say("Hello"), thread=agent.thread(name, account="ana")) for name in names]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        tasks = [each for name in set(names) for each in await agent.background_tasks(agent.thread(name))]
    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [LimitReached]
    assert len(tasks) == 1
