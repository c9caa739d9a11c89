"""The turn that the kill matrix kills: calls in calls, siblings, workers, a pause, and effects of each class.

`put` and `pay` are plain leaves, `note` is an idempotent one, whose receiver knows a key again. What is done here is
written into the files `effects` and `noted` of the home, each line as one effect.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import dspy
from pydantic import BaseModel

from support.agents import Said, open_pauses
from support.databases import contents_of, rows_of
from support.kill_points import AFTER, BEFORE, IN, Killer, bare_agent, prepare
from support.processes import add, lines
from worldagent import Role, WorldAgent
from worldagent.agent import Thread, Turn
from worldagent.core.errors import EffectLost, NothingToResume, StorageUnavailable, ToolFailed
from worldagent.core.pauses import Approve, Happened, NotHappened, Pause, RunAgain, call_id_of
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, Worker, flow, tool
from worldagent.testing import ScriptedCall, ScriptedLM, scan_for_roles

ROLE = Role("critic", "Be as harsh as the keeper of the seventh lighthouse.")
PLAIN = ("first", "nested", "deep", "beside", "paid", "last", "direct", "bought")
NOTED = ("first", "nested", "red")
SIDE_BY_SIDE = 3  # effects of plain leaves that can be under way at once
BESIDE: Final = [
    {"tool": "critic", "arguments": {"request": "Judge all."}},
    {"tool": "put", "arguments": {"what": "direct"}},  # is done at once
    {"tool": "pay", "arguments": {"what": "bought"}},  # waits for a person
    {"tool": "broken", "arguments": {"what": "nothing"}},  # fails
]
"""What the conversation calls side by side with the second part."""

HISTORY = ["message", "plan", "result", "plan", *["result"] * (1 + len(BESIDE)), "answer"]
_STATUS = "SELECT status FROM wa_turn WHERE name='t'"
_UNDER_WAY = """SELECT id FROM wa_call WHERE kind='leaf' AND name <> 'note'
                AND turn IN (SELECT id FROM wa_turn WHERE name='t')
                AND (state='started' OR state='uncertain' AND decision IS NULL)"""
PLAIN_EFFECT, NOTED_EFFECT = "an effect of a plain leaf", "an effect of an idempotent leaf"


class Part(BaseModel):
    part: str


class Judge(dspy.Signature):
    """Judge a part."""

    part: str = dspy.InputField()
    verdict: str = dspy.OutputField()


async def effect(what: str, home: Path, killer: Killer) -> str:
    """An effect of a plain leaf."""
    await killer(BEFORE, PLAIN_EFFECT)
    add(home / "begun", what)
    await killer(IN, PLAIN_EFFECT)
    add(home / "effects", what)
    await killer(AFTER, PLAIN_EFFECT)
    return what


def functions(home: Path, killer: Killer) -> list[Function]:
    async def put(what: str) -> str:
        return await effect(what, home, killer)

    async def pay(what: str) -> str:
        return await effect(what, home, killer)

    async def broken(what: str) -> str:
        raise ToolFailed("there is no such thing", remedy="do without it")

    async def note(key: str) -> str:
        await killer(BEFORE, NOTED_EFFECT)
        add(home / "asked", key)
        await killer(IN, NOTED_EFFECT)
        if key not in lines(home / "noted"):  # the receiver's part
            add(home / "noted", key)
        await killer(AFTER, NOTED_EFFECT)
        return key

    async def nested(ctx: CallContext) -> list[str]:
        calls = [ctx.call("put", {"what": "nested"}), ctx.call("note", {"key": "nested"}), ctx.call("deeper", {})]
        return list(await asyncio.gather(*calls))

    async def deeper(ctx: CallContext) -> str:
        return str(await ctx.call("put", {"what": "deep"}))

    writes = [tool(risk="write")(leaf) for leaf in (put, broken)]
    return [*writes, tool(approval=True)(pay), tool(idempotent=True, risk="write")(note), flow(nested), flow(deeper)]


async def handle(params: Part, ctx: TaskContext) -> Said:
    match params.part:
        case "first":
            said = [await ctx.call("put", {"what": "first"}), await ctx.call("note", {"key": "first"})]
            said += await ctx.call("nested", {})
            said.append((await ctx.task("subagent", {"worker": "critic", "request": "Judge it."})).text)
            said.append((await ctx.predict(Judge, part="first"))["verdict"])
        case "second":
            asked = ctx.calls.ask_person("Which colour?", ["red", "blue"])
            beside = [ctx.call("put", {"what": "beside"}), ctx.call("pay", {"what": "paid"}), asked]
            said = list(await asyncio.gather(*beside))
            said.append(await ctx.call("note", {"key": said[-1]}))
            said.append((await ctx.task("job", {"part": "last"})).text)
        case _:
            try:
                said = [await ctx.call("put", {"what": "last"})]
            except EffectLost:
                said = [await ctx.call("put", {"what": "last"}, key="again")]
    return Said(text=" ".join(said))


def agent_of(home: Path, killer: Killer) -> WorldAgent:
    async def answer(call: ScriptedCall) -> dict[str, Any]:
        await killer(IN, "a model call")
        if "request" in call.fields:
            return {"result": f"judged {random.random()}"}  # it never says the same again
        if "part" in call.fields:
            return {"verdict": f"good {random.random()}"}
        told = " ".join(str(message) for message in call.messages)
        for part, beside in (("first", []), ("second", BESIDE)):
            # `paid` stands in the result of the second part alone, `judged` in that of the first.
            if ("judged" if part == "first" else "paid") not in told:
                return {"reply": "", "calls": [{"tool": "job", "arguments": {"part": part}}, *beside]}
        return {"reply": "All done." if "(tool_failed)" in told else "It is not said that a call failed."}

    crowd = killer.crowd
    job: Shape[Any, Any] = Shape("job", Part, Said, handle, entry=Judge, description="does a part")
    return bare_agent(
        home,
        ScriptedLM(answer, form="native"),
        *("put", "broken", "note", "spend"),
        tools=[*functions(home, killer), *([] if crowd is None else crowd.functions)],
        workers=[Worker("critic", "You judge.", "judges")],
        shapes=[job, *([] if crowd is None else [crowd.shape])],
    )


async def begin(home: Path, killer: Killer) -> None:
    """Run the turn until it waits for a person."""
    async with agent_of(home, killer) as agent:
        await _ready(home, agent, killer)
        killer.on = True
        turn = await agent.thread("t").converse("Do all parts.", role=ROLE)
        killer.on = False
    assert turn.status == "paused", turn


async def go_on(home: Path, killer: Killer) -> dict[str, Any]:
    """Resume the turn, whatever became of it, in this process to its end; gives what came of it."""
    found, under_way = state_of(home)
    asked: dict[str, bool] = {}
    async with agent_of(home, killer) as agent:
        await _ready(home, agent, killer)
        killer.on = True
        thread = agent.thread("t")
        result = await _to_the_end(thread, home, asked)
        killer.on = False
        history = await thread.history()
        crowd = {} if killer.crowd is None or killer.point is not None else await killer.crowd.to_the_end(agent)
    return {
        "state": found,
        "under_way": under_way,
        "result": result,
        "asked": asked,
        "effects": Counter(lines(home / "effects")),
        "noted": Counter(lines(home / "noted")),
        "runs": max(Counter(lines(home / "asked")).values(), default=0),
        "history": [message.kind for message in history],
        "text": history[-1].body["text"],
        "crowd": crowd,
    }


async def through(home: Path, killer: Killer) -> dict[str, Any]:
    """Run the turn from its begin to its end; if a write fails, resume it in this agent or in another one."""
    asked: dict[str, bool] = {}
    async with agent_of(home, killer) as here, agent_of(home, killer) as there:
        await _ready(home, here, killer)
        states = await mended(here, there, killer, lambda thread: _to_the_end(thread, home, asked))
        histories = [await agent.thread("t").history() for agent in (here, there)]
        after = [(await agent.thread("t").converse("And now?")).text for agent in (here, there)]
    [history, same] = histories
    return {
        "states": states,
        "effects": Counter(lines(home / "effects")),
        "noted": Counter(lines(home / "noted")),
        "history": [message.kind for message in history],
        "told": [message.body["text"] for message in history[-1:]] + after,
        "same": history == same,
    }


async def mended(
    here: WorldAgent, there: WorldAgent, killer: Killer, go: Callable[[Thread], Awaitable[object]]
) -> list[str]:
    """Take the turn to its end, in this agent or another one if a write fails; gives its status after each failure."""
    killer.on, resuming, states = True, here, list[str]()
    while True:
        thread = resuming.thread("t")
        try:
            await go(thread)
            break
        except StorageUnavailable as error:
            resuming = there if killer.mend(error) else here
            state = await thread.state()
            states.append("no turn" if state is None else state.status)
    killer.on = False
    return states


async def _ready(home: Path, agent: WorldAgent, killer: Killer) -> None:
    """Make ready what the kill needs, once the database is there."""
    prepare(home)
    if killer.crowd is not None and killer.point is not None:
        await killer.crowd.begin(agent)


async def _to_the_end(thread: Thread, home: Path, asked: dict[str, bool]) -> str:
    """Answer and resume until the turn is done; `asked` gets what is uncertain, and whether it had happened."""

    def answer(pause: Pause) -> object:
        if pause.kind == "uncertain":
            asked[call_id_of(pause.id)] = happened(pause, home)
        return answer_to(pause, home)

    again = await to_the_end(thread, answer, lambda: thread.converse("Do all parts.", role=ROLE))
    return "done, asked again" if again else "done"


async def to_the_end(thread: Thread, answer: Callable[[Pause], object], begin: Callable[[], Awaitable[Turn]]) -> bool:
    """Answer and resume until a turn is done, and begin it where it is not there; returns whether it was begun."""
    begun = False
    while True:
        answers = {pause.id: answer(pause) for pause in await open_pauses(thread)}
        try:
            turn = await thread.resume(answers, role=ROLE)
        except NothingToResume:
            if any(message.kind == "answer" for message in await thread.history()):
                return begun
            turn, begun = await begin(), True
        if turn.status == "done":
            return begun


def answer_to(pause: Pause, home: Path) -> object:
    """What a person answers, who looks at the effects where one is uncertain."""
    if pause.kind == "question":
        return "red"
    if pause.kind == "approval":
        return Approve()
    what = pause.arguments["what"]
    if happened(pause, home):
        return Happened(what)
    return NotHappened() if what == "last" else RunAgain()


def happened(pause: Pause, home: Path) -> bool:
    """Whether the effect that a person is asked of is there."""
    return pause.arguments["what"] in lines(home / "effects")


def state_of(home: Path) -> tuple[str, list[str]]:
    """The status of the turn in the database, and the effects of which only a person can know."""
    turn = rows_of(home, _STATUS)
    under_way = sorted(call for (call,) in rows_of(home, _UNDER_WAY))
    if not turn:
        return "no turn", under_way
    [(status,)] = turn
    return str(status), under_way


def leaks_of(home: Path) -> list[str]:
    """Where the turn's role is in the bytes of a home that is not open."""
    return [str(finding) for finding in scan_for_roles([contents_of(home)], ROLE.content).findings]
