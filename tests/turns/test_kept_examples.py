"""Turns that were agreed to as examples of dspy, and feedback on turns (R12)."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt import BootstrapFewShot
from pydantic import BaseModel

from support.agents import CRITIC, Ask, Nothing, Said, answering, approving, scripted_agent
from support.counters import Calls, is_own
from support.homes import rows
from support.processes import call_of, killed, start_script, wait_for_kill
from worldagent import Policy, Settings
from worldagent.agent import Trigger, TurnStream
from worldagent.core.errors import InvalidArgument, SettingsInvalid, StorageInvalid, UnknownTurn
from worldagent.core.pauses import Approve
from worldagent.graphs import Composed, Shape, TaskContext
from worldagent.graphs.shapes import module_shape
from worldagent.harness import Function, Worker, tool
from worldagent.signatures.calling import ToolCall
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("R12")

ALL, ASKED = {"examples": "all"}, {"examples": "asked"}


@tool(risk="read_only")
async def price(what: str) -> int:
    """The price of a thing."""
    return 3


@tool(approval=True)
async def pay(what: str) -> str:
    """Pay for a thing."""
    return "Paid."


def shopping(form: Any = "native") -> ScriptedLM:
    """A model that asks for the price, or pays, before it answers; its workers judge."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": "Dull."}
        wanted = next((name for name in ("price", "pay") if name in call.user), None)
        if wanted and not call.steps and "You called" not in call.text:
            return {"reply": "", "calls": [{"tool": wanted, "arguments": {"what": "hat"}}]}
        return {"reply": "Three."}

    return ScriptedLM(reply, form=form)


def message_of(example: Any) -> str:
    return str(example["message"])


async def test_nothing_is_kept_unless_the_setting_and_the_call_agree(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "off", answering()) as agent:
        thread = agent.thread("t")
        with pytest.raises(InvalidArgument, match=r"the setting `examples` is 'off'; use Settings\(examples='asked'\)"):
            await thread.converse("Hi", example=True)
        await thread.converse("Hi")
        assert await agent.examples() == []
        assert len(await thread.history()) == 2
    async with scripted_agent(tmp_path / "asked", answering(), settings=ASKED) as agent:
        thread = agent.thread("t")
        await thread.converse("one")
        await thread.converse("two", example=True)
        async with thread.stream("three", example=True) as stream:
            await stream.wait()
        assert list(map(message_of, await agent.examples())) == ["three", "two"]
    async with scripted_agent(tmp_path / "all", answering(), settings=ALL) as agent:
        await agent.thread("t").converse("one")
        await agent.thread("t").edit("other")
        assert list(map(message_of, await agent.examples())) == ["other", "one"]
    with pytest.raises(InvalidArgument, match="`example` must be True or False, got 'str'; pass"):
        async with scripted_agent(tmp_path / "all", answering(), settings=ALL) as agent:
            await agent.thread("t").converse("one", example="yes")  # type: ignore[arg-type]  # the test's subject
    with pytest.raises(SettingsInvalid, match="examples"):
        Settings(examples="some")


async def test_an_example_has_no_words_of_turns_that_were_not_agreed_to(tmp_path: Path) -> None:
    """Bob did not agree, so his words are in no example of Ana's, and in no summary that one shows."""

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"summary": "Bob has a secret."} if "earlier" in call.fields else {"reply": "Fine."}

    lm = ScriptedLM(reply)
    async with scripted_agent(tmp_path, lm, settings={"history_limit": 6, "examples": "asked"}) as agent:
        ana, bob = (agent.thread("t", account=account) for account in ("ana", "bob"))
        await bob.converse("Bob's secret")
        await ana.converse("one", example=True)
        await ana.converse("two", example=True)
        assert (await agent.examples())[0].history.messages == [{"message": "one"}, {"reply": "Fine."}]
        await bob.converse("Bob's other secret")
        fork = await ana.fork(to="fork")
        for number in range(5):
            await fork.converse(str(number), example=True)
        assert "Bob has a secret." in lm.calls[-1].text
        found = await agent.examples()
    assert len(found) == 7
    assert [len(example.history.messages) for example in found[:3]] != [0, 0, 0]
    assert "ecret" not in str([example.toDict() for example in found])


class Asked(BaseModel):
    message: str


async def test_a_signature_that_neither_the_agent_nor_an_example_has_is_refused(tmp_path: Path) -> None:
    module = module_shape("ask", dspy.Predict(Ask), params=Asked, result=Said, entry=Ask)
    async with scripted_agent(tmp_path, answering(), workers=[CRITIC], shapes=[module], settings=ALL) as agent:
        await agent.thread("t").task("subagent", {"worker": "critic", "request": "Judge."})
        assert await agent.examples("Converse") == []
        assert await agent.examples("Ask") == []
        with pytest.raises(
            InvalidArgument, match=r"no Signature is called 'Nope'; the Signatures are: Converse, .*Ask"
        ):
            await agent.examples("Nope")
    async with scripted_agent(tmp_path, answering(), settings=ALL) as agent:  # without the worker
        assert len(await agent.examples("critic")) == 1
        assert await agent.examples("critic", account="ana") == []
        with pytest.raises(InvalidArgument, match=r"no Signature is called 'Ask'; the Signatures are: "):
            await agent.examples("Ask")


async def test_a_person_can_agree_wherever_a_turn_begins(tmp_path: Path) -> None:
    trigger = Trigger(schedule="daily", fired_at=datetime(2026, 1, 1, tzinfo=UTC))
    task, skill = {"worker": "critic", "request": "Judge it."}, Composed("Count.", shape="review")
    agreeing = [
        lambda thread, **more: thread.task("subagent", task, **more),
        lambda thread, **more: thread.stream_task("subagent", task, **more),
        lambda thread, **more: thread.run_scheduled(trigger, **more),
        lambda thread, **more: thread.stream_scheduled(trigger, **more),
        lambda thread, **more: thread.edit("other", **more),
        lambda thread, **more: thread.stream_edit("other", **more),
        lambda thread, **more: thread.replay(**more),
        lambda thread, **more: thread.stream_replay(**more),
        lambda thread, **more: thread.run_skill(skill, **more),
        lambda thread, **more: thread.stream_skill(skill, **more),
    ]

    async def run(begin: Any, thread: Any, **more: Any) -> None:
        begun = begin(thread, **more)
        if isinstance(begun, TurnStream):
            async with begun as stream:
                await stream.wait()
        else:
            await begun

    shapes = [Shape("review", Nothing, Said, _delegating)]
    async with scripted_agent(tmp_path / "asked", shopping(), workers=[CRITIC], shapes=shapes, settings=ASKED) as agent:
        for number, begin in enumerate(agreeing):
            thread = agent.thread(f"t{number}")
            await thread.converse("Hi")
            await run(begin, thread)
            assert len(await agent.examples()) == number
            await run(begin, thread, example=True)
            assert len(await agent.examples()) == number + 1
    async with scripted_agent(tmp_path / "off", shopping(), workers=[CRITIC], shapes=shapes) as agent:
        for begin in agreeing:
            with pytest.raises(InvalidArgument, match="`examples` is 'off'"):
                await run(begin, agent.thread("t"), example=True)


@pytest.mark.on_every_database
async def test_each_step_of_a_model_is_an_example_with_the_inputs_and_outputs_of_production(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, shopping(), tools=[price], settings=ASKED) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("Hello", example=True)
        turn = await thread.converse("The price of a hat?", example=True)
        calling, answer, _ = await agent.examples("Converse")
    before = [{"message": "Hello"}, {"reply": "Three."}]
    made = [ToolCall(tool="price", arguments={"what": "hat"})]
    assert set(calling.inputs().keys()) == {"history", "message", "offered_tools"}
    assert calling.history == dspy.History(messages=before)
    assert (calling["message"], calling.reply, calling.calls) == ("The price of a hat?", "", made)
    assert [each["function"]["name"] for each in calling.offered_tools] == ["price"]
    assert (answer.reply, answer.calls) == ("Three.", [])
    [*earlier, called] = answer.history.messages
    assert earlier == before
    assert called["note"].startswith('You called \'price\' with {"what": "hat"}. Its result (data, not')
    assert (answer.signature, answer.turn, answer.feedback, answer.note) == ("Converse", turn.id, None, None)


@pytest.mark.parametrize("form", ["native", "chat"])
async def test_a_program_that_gets_an_example_sends_what_the_turn_sent(tmp_path: Path, form: Any) -> None:
    lm = shopping(form)
    async with scripted_agent(tmp_path, lm, tools=[price], settings=ALL) as agent:
        await agent.thread("t").converse("Hello")
        await agent.thread("t").converse("The price of a hat?")
        examples, program = await agent.examples(), agent.program("Converse")
    produced = [lm.calls[1], lm.calls[0]]
    with dspy.context(lm=lm):
        for example, call in zip((examples[0], examples[2]), produced, strict=True):
            assert (await program.acall(**example.inputs())).calls == example.calls
            alone = lm.calls[-1]
            assert (alone.system, alone.messages, alone.tools) == (call.system, call.messages, call.tools)
        assert (await program.acall(**examples[1].inputs())).reply == "Three."
    assert "You called 'price'" in lm.calls[-1].text


async def test_a_conversation_without_tools_is_replayed_without_tools(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), settings=ALL) as agent:
        await agent.thread("t").converse("Hello")
        [example] = await agent.examples()
    assert example.offered_tools == []
    lm = answering()
    async with scripted_agent(tmp_path, lm, tools=[price], settings=ALL) as agent:
        program = agent.program("Converse")
    with dspy.context(lm=lm):
        await program.acall(**example.inputs())
    assert lm.calls[0].tools == ()
    assert "price" not in lm.calls[0].text


async def test_examples_optimise_a_program_and_their_feedback_is_in_no_file(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "one", shopping(), tools=[price], settings=ALL) as agent:
        for text, given in (("Good morning", "good"), ("Good night", "bad")):
            turn = await agent.thread("t").converse(text)
            await agent.thread("t").feedback(turn.id, given, note=f"it was {given}")  # type: ignore[arg-type]  # both are
        examples, program = await agent.examples("Converse"), agent.program("Converse")
    seen: list[tuple[Any, Any]] = []

    def metric(example: Any, prediction: Any, trace: object = None) -> bool:
        seen.append((example.feedback, example.note))
        return bool(example.feedback == "good" and example.reply == prediction.reply)

    with dspy.context(lm=shopping()):
        compiled = BootstrapFewShot(metric, max_bootstrapped_demos=4, max_labeled_demos=4).compile(
            program, trainset=examples
        )
    assert set(seen) == {("good", "it was good"), ("bad", "it was bad")}
    file = tmp_path / "converse.json"
    compiled.save(file)
    assert "Good morning" in file.read_text()
    assert "it was" not in file.read_text()
    lm = shopping()
    async with scripted_agent(tmp_path / "two", lm, tools=[price], programs={"Converse": file}) as agent:
        await agent.thread("t").converse("Hello")
    assert "Good morning" in lm.calls[0].text


async def _delegating(params: Nothing, ctx: TaskContext) -> Said:
    await ctx.call("subagent", {"worker": "critic", "request": "Judge it."})
    return Said(text="Judged.")


async def _review(params: Nothing, ctx: TaskContext) -> Said:
    assert ctx.entry is not None
    return Said(text=str((await ctx.predict(ctx.entry, message="Well?"))["reply"]))


async def test_workers_and_shapes_give_examples_of_their_entry_signatures(tmp_path: Path) -> None:
    counting = Worker("counter", "You count.", tools=("price",))

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" not in call.fields:
            return {"reply": "Fine."}
        return {"result": "Three."} if call.steps or "Judge" in call.text else {"calls": [PRICED]}

    async with scripted_agent(
        tmp_path,
        ScriptedLM(reply),
        workers=[CRITIC, counting],
        tools=[price],
        shapes=[Shape("review", Nothing, Said, _review, entry=Ask)],
        settings=ALL,
    ) as agent:
        thread = agent.thread("t")
        await thread.task("subagent", {"worker": "critic", "request": "Judge it."})
        await thread.task("subagent", {"worker": "counter", "request": "Count."})
        await thread.task("review", {})
        await thread.run_skill(Composed("Count syllables.", params={"worker": "critic", "request": "Judge that."}))
        [judged], [asked], [counted] = [await agent.examples(name) for name in ("critic", "Ask", "counter")]
    assert (judged.toDict(), set(judged.inputs().keys())) == (
        {"request": "Judge it.", "result": "Three."},
        {"request"},
    )
    assert (asked.toDict(), set(asked.inputs().keys())) == ({"message": "Well?", "reply": "Fine."}, {"message"})
    # What follows a call rests on results that the Signature of a worker has no field for.
    assert (counted.request, counted.calls) == ("Count.", [ToolCall(**PRICED)])


class Judge(dspy.Signature):
    """Judge it."""

    draft: str = dspy.InputField()
    verdict: str = dspy.OutputField()


class Draft(BaseModel):
    draft: str
    tone: str = "kind"


class Verdict(BaseModel):
    verdict: str


class Judging(dspy.Module):
    """Tries twice, and gives the second verdict."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = dspy.ChainOfThought(Judge)

    async def aforward(self, draft: str, tone: str) -> dspy.Prediction:
        await self.judge.acall(draft=draft)
        return await self.judge.acall(draft=draft)


async def test_a_run_of_a_module_is_one_example_that_trains_the_module(tmp_path: Path) -> None:
    module: Any = Judging()
    shape = module_shape("judge", module, params=Draft, result=Verdict, entry=Judge)
    plain = module_shape("plain", module, params=Draft, result=Verdict)
    said = [{"reasoning": "So.", "verdict": verdict} for verdict in ("No.", "Dull.", "No.", "Dull.")]
    async with scripted_agent(tmp_path, ScriptedLM(said), shapes=[shape, plain], settings=ALL) as agent:
        turn = await agent.thread("t").task("judge", Draft(draft="Felt hats."))
        await agent.thread("t").task("plain", Draft(draft="Felt hats."))
        await agent.thread("t").feedback(turn.id, "good")
        [example] = await agent.examples()
    assert (example.signature, example.turn, example.feedback) == ("Judge", turn.id, "good")
    assert example.inputs().toDict() == {"draft": "Felt hats.", "tone": "kind"}
    assert example.labels().toDict() == {"verdict": "Dull."}
    with dspy.context(lm=ScriptedLM([{"reasoning": "So.", "verdict": "Dull."}] * 2), trace=[]):
        assert (await module.acall(**example.inputs())).verdict == example.verdict


PRICED: Any = {"tool": "price", "arguments": {"what": "hat"}}


async def test_unusable_answers_answers_in_json_and_turns_with_attachments_are_not_kept(tmp_path: Path) -> None:
    bad = {"reply": "", "calls": [{"tool": "nothing", "arguments": {}}]}
    lm = ScriptedLM([bad, {"reply": "Three."}, {"reply": "4"}, {"reply": "An image."}, {"reply": "Later."}])
    async with scripted_agent(tmp_path, lm, tools=[price], settings=ALL) as agent:
        thread = agent.thread("t")
        await thread.converse("Hello")
        await thread.converse("How many?", output=int)
        await thread.converse("What is this?", attachments=["https://example.com/hat.png"])
        await thread.converse("And then?")
        later, first = await agent.examples()
    assert (later.message, first.message, first.reply, first.history.messages) == ("And then?", "Hello", "Three.", [])
    assert all(entry.keys() <= {"message", "reply", "attachments"} for entry in later.history.messages)


@pytest.mark.on_every_database
async def test_a_turn_that_is_resumed_is_kept_whole_and_one_that_is_cancelled_not_at_all(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, shopping(), tools=[pay], settings=ASKED) as agent:
        for name in ("done", "cancelled"):
            await agent.thread(name).converse("Please pay.", example=True)
        assert await agent.examples() == []
    async with scripted_agent(tmp_path, shopping(), tools=[pay], settings=ASKED) as agent:
        assert await agent.thread("cancelled").cancel()
        [pause] = await agent.thread("done").pauses()
        turn = await agent.thread("done").resume({pause.id: Approve()})
        kept = await agent.examples()
        assert [(example.turn, bool(example.calls)) for example in kept] == [(turn.id, True), (turn.id, False)]
        assert await rows(agent, "wa_example") == 3
        await agent.upkeep.prune()
        assert await rows(agent, "wa_example") == 2
    async with scripted_agent(tmp_path, shopping(), tools=[pay]) as agent:  # switched off, what is kept stays
        assert len(await agent.examples()) == 2


async def _odd(params: Nothing, ctx: TaskContext) -> Said:
    assert ctx.entry is not None
    for message in (b"\xff", object(), "half a \ud83d pair", 1 << 80):
        await ctx.predict(ctx.entry, message=message)
    return Said(text="done")


async def test_inputs_that_are_not_json_give_no_example_and_fail_no_turn(tmp_path: Path) -> None:
    odd = Shape("odd", Nothing, Said, _odd, entry=Ask)
    async with scripted_agent(tmp_path, answering(), shapes=[odd], settings=ALL) as agent:
        assert (await agent.thread("t").task("odd", {})).status == "done"
        assert [example.message for example in await agent.examples()] == ["half a \ufffd pair", 1 << 80]


class Told(dspy.Signature):
    """Sum it up."""

    history: str = dspy.InputField()  # a text that only has the name
    reply: str = dspy.OutputField()


class Talk(dspy.Signature):
    """Continue it."""

    before: dspy.History = dspy.InputField()
    message: str = dspy.InputField()
    reply: str = dspy.OutputField()


SAID = [{"message": "Hello", "reply": "Good day."}]
CONVERSATIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a text": (Told, {"history": "It was night."}),
    "a history": (Talk, {"before": dspy.History(messages=SAID), "message": "And now?"}),
    "messages": (Talk, {"before": SAID, "message": "And now?"}),
}


@pytest.mark.parametrize("given", CONVERSATIONS)
async def test_a_signature_of_a_shape_can_have_a_history_of_its_own(tmp_path: Path, given: str) -> None:
    signature, inputs = CONVERSATIONS[given]

    async def sum_up(params: Nothing, ctx: TaskContext) -> Said:
        return Said(text=str((await ctx.predict(signature, **inputs))["reply"]))

    shape = Shape("sum_up", Nothing, Said, sum_up, entry=signature)
    async with scripted_agent(tmp_path, answering(), shapes=[shape], settings=ALL) as agent:
        await agent.thread("t").task("sum_up", {})
        [example] = await agent.examples(signature.__name__)
        program: Any = agent.program(signature.__name__)
    found = example.inputs().toDict()
    assert found == ({"before": {"messages": SAID}, "message": "And now?"} if signature is Talk else inputs)
    program.predict.demos = [example]
    [demo] = program.dump_state()["predict"]["demos"]
    assert demo == {name: value for name, value in example.toDict().items() if name != "before"}


def written() -> Function:
    """The tool `price` as an effect, whose result is recorded before the next step."""

    @tool(risk="write")
    async def price(what: str) -> int:
        """The price of a thing."""
        return 3

    return price


async def die(home: Path) -> None:
    """Begin a turn whose second step never ends, in a process to kill."""

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        if call.steps:
            await wait_for_kill()
        return {"reply": "", "calls": [PRICED]}

    policy = Policy(rules=(approving("price"),))
    async with scripted_agent(home, ScriptedLM(reply), tools=[written()], settings=ASKED, policy=policy) as agent:
        await agent.thread("t").converse("The price of a hat?", example=True)


async def test_a_turn_that_is_killed_and_resumed_has_an_example_of_each_step_once(tmp_path: Path) -> None:
    await killed(await start_script(call_of(die, tmp_path)))
    lm, policy = shopping(), Policy(rules=(approving("price"),))
    async with scripted_agent(tmp_path, lm, tools=[written()], settings=ASKED, policy=policy) as agent:
        assert await rows(agent, "wa_example") == 1
        assert await agent.examples() == []
        await agent.thread("t").resume()
        calling, answer = await agent.examples()
    assert len(lm.calls) == 1
    assert (calling.calls, answer.reply) == ([ToolCall(**PRICED)], "Three.")
    assert "You called 'price'" in answer.history.messages[-1]["note"]


@pytest.mark.on_every_database
async def test_feedback_is_stored_with_any_turn_and_can_be_replaced(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), workers=[CRITIC], settings=ASKED) as agent:
        ana, ben = agent.thread("a", account="ana"), agent.thread("b", account="ben")
        one = await ana.converse("one", example=True)
        two = await ben.converse("two", example=True)
        silent = await ben.converse("three")
        await ana.feedback(one.id, "bad", note="too long")
        await ana.feedback(one.id, "good")
        await ben.feedback(two.id, "bad", note="wrong")
        await ben.feedback(silent.id, "bad")
        newest, oldest = await agent.examples()
        assert (newest.feedback, newest.note, oldest.feedback, oldest.note) == ("bad", "wrong", "good", None)
        assert newest.with_inputs("message").copy().note == "wrong"
        for filters, wanted in FILTERED:
            assert list(map(message_of, await agent.examples(**filters))) == wanted, filters
        assert await rows(agent, "wa_feedback") == 3


FILTERED: list[tuple[dict[str, Any], list[str]]] = [
    ({"feedback": "good"}, ["one"]),
    ({"account": "ben"}, ["two"]),
    ({"account": "ben", "feedback": "good"}, []),
    ({"signature": "Converse", "limit": 1}, ["two"]),
    ({"signature": "critic"}, []),
]
WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "another thread's turn": (("turn_x", "good"), {}, UnknownTurn, "'novel/t' has no turn 'turn_x'; use the id of a"),
    "no text": ((3, "good"), {}, UnknownTurn, "has no turn '3'"),
    "no feedback": (("", "fine"), {}, InvalidArgument, "must be 'good' or 'bad', got 'fine'; use one"),
    "a list": (("", ["good"]), {}, InvalidArgument, "must be 'good' or 'bad'"),
    "an empty note": (("", "bad"), {"note": " "}, InvalidArgument, "`note` must be a text of 1 to 2000 characters"),
    "a long note": (("", "bad"), {"note": "x" * 2001}, InvalidArgument, "shorten it"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_invalid_feedback_is_refused(tmp_path: Path, wrong: str) -> None:
    given, more, error, says = WRONG[wrong]
    async with scripted_agent(tmp_path, answering()) as agent:
        await agent.thread("other").converse("Hi")
        with pytest.raises(error, match=says):
            await agent.thread("t").feedback(*given, **more)


async def test_invalid_filters_and_rows_are_refused(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), settings=ALL) as agent:
        await agent.thread("t").converse("Hi")
        with pytest.raises(InvalidArgument, match="`feedback` must be 'good' or 'bad'"):
            await agent.examples(feedback="fine")  # type: ignore[arg-type]  # the test's subject
        for limit in (0, 10_001, True):
            with pytest.raises(InvalidArgument, match="`limit` must be an integer from 1 to 10000"):
                await agent.examples(limit=limit)
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
        database.execute("UPDATE wa_example SET inputs='{'")
    async with scripted_agent(tmp_path, answering()) as agent:
        with pytest.raises(StorageInvalid, match=r"an example of the turn 'turn_\w+'.* cannot be read: inputs"):
            await agent.examples()


@pytest.mark.on_every_database
async def test_many_examples_do_not_keep_the_event_loop_busy(tmp_path: Path) -> None:
    counted: list[int] = []
    async with scripted_agent(tmp_path, answering(), settings=ALL) as agent:
        for _ in range(24):
            await agent.thread("t").converse("Hi")
        for limit in (1, 24) * 3:  # the agent's own timers may fall into a run, and the first one does more
            calls = Calls()
            with calls.counting():
                await agent.examples(limit=limit)
            # The loop's own calls are left out: it sorts its timers when it likes.
            counted.append(sum(is_own(code) for code in calls.seen))
    assert min(counted[1::2]) - min(counted[::2]) < 23  # fewer than one call more for each example


async def test_removing_a_thread_removes_its_examples_and_feedback(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), settings=ALL) as agent:
        for name in ("gone", "stays"):
            turn = await agent.thread(name).converse(name)
            await agent.thread(name).feedback(turn.id, "good", note=name)
        await agent.upkeep.remove("gone")
        assert list(map(message_of, await agent.examples())) == ["stays"]
        assert (await rows(agent, "wa_example"), await rows(agent, "wa_feedback")) == (1, 1)


async def test_a_backup_has_the_examples_and_the_file_of_a_thread_has_not(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "home", answering(), settings=ALL) as agent:
        turn = await agent.thread("t").converse("Hello")
        await agent.thread("t").feedback(turn.id, "good")
        await agent.upkeep.export("t", tmp_path / "t.jsonl")
        await agent.upkeep.back_up(tmp_path / "copy")
    async with scripted_agent(tmp_path / "copy", answering()) as agent:
        [example] = await agent.examples()
        assert (example.message, example.feedback) == ("Hello", "good")
    async with scripted_agent(tmp_path / "other", answering(), settings=ALL) as agent:
        await agent.upkeep.import_thread(tmp_path / "t.jsonl")
        assert await agent.examples() == []
