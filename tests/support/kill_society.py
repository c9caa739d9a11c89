"""Members of a society in a process that is killed at any point, and the same done to its end in another process.

As a program it kills at all points of the cases given, or at some of them, and prints a JSON object for each kill. Each
process is a fork of this one, which has everything loaded.
"""

import asyncio
import json
import os
import random
import signal
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from support.agents import approving, calls, open_pauses
from support.databases import Engine, removed, rows_of
from support.kill_points import AFTER, WITHIN, Copies, Killer, Passed, Point, armed, bare_agent, some
from support.processes import add, be_program, forked_result, lines, started
from support.role_specs import BRIEF, spec_of, template_of, workspace_of
from support.society_tables import problems_of
from worldagent import WorldAgent, tool
from worldagent.agent import Thread
from worldagent.core.pauses import Approve, Happened, RunAgain
from worldagent.harness import ToolContext
from worldagent.members import (
    SEND_RULES,
    AgentMemory,
    AuthorityConfig,
    Contact,
    Event,
    Gateway,
    InterfaceSpec,
    MemberLimits,
    Route,
    TaskBrief,
    WorkspaceConfig,
)
from worldagent.members.data.brief import Collaborator
from worldagent.members.data.roles import RoleStatus, TrustProfile
from worldagent.memory.entries import Insight
from worldagent.testing import ScriptedCall

_BOUND = 120  # seconds
_EFFECTS: Final = "effects"  # the file of a home with a line for each message that was acted on
_UPKEEP: Final = ("TurnLog.prune", "Recording.write")  # how often they come differs from run to run
_NEED: Final = "I need a page."
_AUTHORITY: Final = AuthorityConfig(autonomous=("note",))
_LAW: Final = InterfaceSpec(services="Checks contracts.", input_format="The contract.", output_format="A list.")

_STEPS: Final = "SELECT member, status, reason FROM wa_member_step ORDER BY number"
_BRIEFS: Final = "SELECT member, giver, state, note, attempt, unmet FROM wa_brief"
_INSIGHTS: Final = "SELECT owner, text FROM wa_entry WHERE kind='insight'"

Step = Callable[[WorldAgent, Path, bool], Awaitable[object]]
"""Works in a home, and answers what is asked of a person or not."""


def _send(to: str, content: str = "", kind: str | None = None, reason: str = "", **payload: str) -> tuple[str, Any]:
    given = {"message_type": kind, "payload": payload} if kind else {}
    return "send_message", {"to": to, "content": content, **given, **({"reason": reason} if reason else {})}


_ASK: Final = {"kind": "introduction_request", "reason": "A contract.", "required_capability": "contracts"}
_SPAWN: Final = ("spawn_agent", {"template": "developer", "params": {"name": "Dana"}, "brief": BRIEF})

# What a member does with a message that has this text. It notes the message before that.
_ACTS: Final[dict[tuple[str, str], list[tuple[str, Any]]]] = {
    ("root", _NEED): [_SPAWN, _send("developer-dana", "Begin."), _send("developer-dana", "Then tell me.")],
    ("root", "Built."): [],
    ("developer-dana", BRIEF["objective"]): [],
    ("developer-dana", "Begin."): [],
    ("developer-dana", "Then tell me."): [_send("root", "Built.", "status_report")],
    ("cro", "analyst was terminated"): [],
    ("cro", "Go."): [_send("bdr", "Find a lawyer.")],
    ("bdr", "Find a lawyer."): [_send("cro", **_ASK)],
    ("cro", "required_capability"): [_send("root", **_ASK)],
    ("bdr", "target_id: legal"): [_send("legal", "Check it.", reason="A contract.")],
    ("legal", "Check it."): [_send("bdr", "Checked.")],
    ("bdr", "Checked."): [],
    ("coo", "Go."): [_send("qa", "One."), _send("qa", "Two."), _send("qa", "Three.")],
    ("qa", "One."): [],
    ("qa", "Two."): [_send("coo", "Half is tested.")],
    ("qa", "Three."): [_send("coo", "All is tested.")],
    ("coo", "Count."): [("request_role", {"to": "qa", "content": "How many?", "seconds": 3600})],
    ("qa", "How many?"): [_send("coo", "Seven.")],
    ("coo", "Vote."): [
        ("ask_group", {"members": ["cro", "legal", "qa"], "request": "Which colour?", "deadline": 3600})
    ],
    **{(each, "Which colour?"): [_send("coo", f"{each} wants blue.")] for each in ("cro", "legal", "qa")},
    ("coo", "Half is tested."): [],
    ("coo", "All is tested."): [],
    ("cro", "'sign' is forbidden for 'bdr'"): [("pay", {"lead": "e8"})],
    ("rep-apac", "You cover APAC."): [],
    ("cro", "The menu."): [_send("root", "The menu is done.", "status_report", state="done")],
    ("legal", "The terms."): [_send("root", "There are none.", "status_report", state="failed")],
    ("root", "The menu is done."): [],
    ("root", "There are none."): [],
    ("cro", "Spend."): [_send("bdr", "Spend, too.")],
    ("bdr", "Spend, too."): [],
    ("cro", "The budget of"): [],
}
_MEMBERS: Final = {"cro": "", "coo": "", "legal": "", "bdr": "cro", "qa": "coo"}
"""The members that are there before, with their parents."""


def _reply(call: ScriptedCall) -> dict[str, Any]:
    message, reply = str(call.fields["message"]), "result" if "task" in call.fields else "reply"
    who = next((each for each in _MEMBERS if f"You are {each}." in call.text), "root")
    who = "developer-dana" if "Your name is Dana." in call.text else who
    who = "rep-apac" if "You cover APAC." in call.text else who
    [(text, acts)] = [(text, acts) for (member, text), acts in _ACTS.items() if member == who and text in message]
    todo = [("note", {"what": f"{who}: {text}"}), *acts]
    if text == "Vote." and len(call.steps) >= len(todo):
        todo.append(("note", {"what": _votes(call.steps[1])}))
    return {reply: "Done."} if (at := len(call.steps)) == len(todo) else {reply: "", **calls(todo[at])}


def _votes(step: str) -> str:
    """What the members of a group answered, and who did not."""
    found = json.JSONDecoder().raw_decode(step[step.rindex('{"answers"') :])[0]
    return f"coo heard: {sorted(found['answers'].values())}, {found['missing']}"


def workspace() -> WorkspaceConfig:
    """The workspace, whose members can make a developer."""
    given: dict[str, Any] = {"domains": ("web",), "authority": _AUTHORITY, "operator_ids": ("note",)}
    soul = "You build pages. Your name is {name}."
    developer = template_of("developer", "root", name_pattern="Developer {name}", soul_template=soul, **given)
    soul = "You cover {place}."
    rep = template_of("rep", "cro", name_pattern="Rep {place}", soul_template=soul, parameters=("place",), **given)
    return workspace_of(developer, rep, brief="derived")


def agent_of(home: Path) -> WorldAgent:
    @tool(risk="write")
    async def note(what: str) -> str:
        add(home / _EFFECTS, what)
        return what

    @tool(risk="write")
    async def qualify(ctx: ToolContext, lead: str) -> str:
        add(home / _EFFECTS, line := f"{ctx.on_behalf_of} ran: {lead}")
        return line

    @tool(risk="destructive")
    async def pay(ctx: ToolContext, lead: str) -> str:
        add(home / _EFFECTS, line := f"{ctx.on_behalf_of} paid: {lead}")
        return line

    rules = (*SEND_RULES, approving("note", after="*", arguments={"what": "*"}))  # in turns that have read a message
    given: dict[str, Any] = {"society": workspace(), "tools": [note, qualify, pay], "rules": rules}
    return bare_agent(home, _reply, "spawn_agent", "note", "qualify", **given)


# --- the cases --------------------------------------------------------------------------------------------------------


async def join(agent: WorldAgent) -> None:
    """Have the members join."""
    for role_id, parent in _MEMBERS.items():
        own: dict[str, Any] = {"domains": (f"of {role_id}",), "operator_ids": ("note",), "authority": _AUTHORITY}
        spec = spec_of(role_id, parent, **own)
        await agent.society.join(spec, name=role_id.upper(), interface=_LAW if role_id == "legal" else None)


async def _joined(agent: WorldAgent, home: Path, answers: bool) -> None:
    await join(agent)


async def _told(agent: WorldAgent, home: Path, answers: bool) -> None:
    await join(agent)
    for member in ("cro", "coo"):
        await agent.society.mail.send("root", member, "Go.", message_id=f"go-{member}")


async def _counted(agent: WorldAgent, home: Path, answers: bool) -> None:
    await join(agent)
    await agent.society.mail.send("root", "coo", "Count.", message_id="count")


async def _voted(agent: WorldAgent, home: Path, answers: bool) -> None:
    await join(agent)
    for one, other in (("coo", "cro"), ("coo", "legal"), ("cro", "coo"), ("legal", "coo")):
        await agent.society.contacts.add(one, Contact(id=other, role=other.upper()))
    await agent.society.mail.send("root", "coo", "Vote.", message_id="vote")


async def _briefed(agent: WorldAgent, home: Path, answers: bool) -> None:
    """The COO has a brief, and legal another one that waits for it."""
    await join(agent)
    for id_, member, objective, after in (("menu", "coo", "The menu.", []), ("terms", "legal", "The terms.", ["menu"])):
        brief = {**BRIEF, "objective": objective, "after": after, "deadline": "4w"}
        payload = {"message_type": "task_assignment", "task_brief": brief}
        await agent.society.mail.send("root", member, payload=payload, message_id=id_)


async def _reassign(agent: WorldAgent, home: Path, answers: bool) -> None:
    """Give the first brief to the CRO, and deliver until both are over. What was done is not done again."""
    if (await agent.society.board.get("menu")).state != "done":
        await agent.society.board.reassign("menu", "cro")
    await _deliver(agent, home, answers)


async def _limited(agent: WorldAgent, home: Path, answers: bool) -> None:
    """Members with limits: what the BDR is asked is one turn more than it has."""
    await join(agent)
    await agent.society.budgets.extend("cro", MemberLimits(turns=20, tokens=10**8))
    await agent.society.budgets.extend("bdr", MemberLimits(turns=1, tokens=10**7))
    for number in (1, 2):
        await agent.society.mail.send("root", "cro", "Spend.", message_id=f"spend-{number}")


async def _spend(agent: WorldAgent, home: Path, answers: bool) -> None:
    """Deliver until work waits for a budget, extend that, and deliver the rest."""
    gateway = Gateway(agent)
    async with asyncio.timeout(_BOUND):
        while not any(each.holder == "member bdr" for each in await agent.society.budgets.held()):
            if not await agent.society.mail.waiting():
                return
            if not await gateway.deliver() and answers:
                for member in ("cro", "bdr"):
                    await gateway.enlist(member)
                    await _answered(home, agent.thread(f"member {member}", account=f"member:novel/{member}"), member)
        while await gateway.deliver():  # the CRO is told
            pass
    await agent.society.budgets.extend("bdr", MemberLimits(turns=2, tokens=10**7))
    await _deliver(agent, home, answers)


async def _deliver(agent: WorldAgent, home: Path, answers: bool) -> None:
    """Deliver until nothing waits. What a person must say of a call that was cut off is answered here, if it may be."""
    gateway = Gateway(agent)
    async with asyncio.timeout(_BOUND):
        while True:
            waiting = await agent.society.mail.waiting()
            events = [each for each in await agent.society.events.list() if each.state != "done"]
            if not waiting and not events:
                return
            if await gateway.deliver():
                continue
            for member in {each.message.to_id for each in waiting} if answers else ():
                await _answered(home, agent.thread(f"member {member}", account=f"member:novel/{member}"), member)
            for each in events if answers else ():
                await gateway.enlist(each.member)
                thread = agent.thread(f"event {each.event.id}", account=f"member:novel/{each.member}")
                await _answered(home, thread, each.member)
            await asyncio.sleep(0.02)  # another process has the rest


async def _answered(home: Path, thread: Thread, member: str) -> None:
    """Approve what asks, and say of a call that was cut off whether it happened."""
    for pause in [each for each in await open_pauses(thread) if each.kind != "reply"]:
        assert (pause.kind, pause.function) in _ASKS, pause
        verb = {"note": "", "qualify": f"{member} ran: ", "pay": f"{member} paid: "}[pause.function]
        line = f"{verb}{pause.arguments['what' if pause.function == 'note' else 'lead']}"
        answer = Happened(line) if line in lines(home / _EFFECTS) else RunAgain()
        await thread.resume({pause.id: Approve() if pause.kind == "approval" else answer})


_ASKS: Final = [*(("uncertain", each) for each in ("note", "qualify", "pay")), ("approval", "pay")]


async def _turn(agent: WorldAgent, home: Path, answers: bool) -> None:
    thread = agent.thread("chat", account="charles")
    turn = await thread.converse(_NEED, key="need")
    while turn.status == "paused":
        await _answered(home, thread, "root")
        turn = await thread.converse(_NEED, key="need")
    await _deliver(agent, home, answers)


async def _learned(agent: WorldAgent, home: Path, answers: bool) -> None:
    """The CRO has an analyst that leaves it what it learned, and waits for an answer of the analyst."""
    await join(agent)
    await agent.society.join(spec_of("analyst", "cro", memory_policy="merge_to_parent"))
    insights = [
        Insight(id=name, role_id="analyst", text=f"Lesson {name}.", confidence=0.9, tags=tags)
        for name, tags in (("own", ()), ("given", ("inherited",)))
    ]
    await AgentMemory(agent, "analyst").store_insights(insights)
    await agent.society.mail.send("cro", "analyst", "How many?", kind="request", message_id="asked")


async def _end(agent: WorldAgent, home: Path, answers: bool) -> None:
    """Terminate the analyst, and deliver until nothing is left of it."""
    analyst = await agent.society.members.member("novel", "analyst")
    if analyst.life.status is not RoleStatus.TERMINATED:
        await agent.society.terminate("analyst")
    await _deliver(agent, home, answers)
    while await agent.society.memory_due():
        await Gateway(agent).deliver()


async def _spawn(agent: WorldAgent, home: Path, answers: bool) -> None:
    helpers = [Collaborator(id=each, role=each.upper(), note="Ask it.") for each in ("cro", "legal")]
    brief = replace(TaskBrief.from_json(BRIEF), collaborators=tuple(helpers))
    await agent.society.spawn("root", "developer", {"name": "Dana"}, brief, message_id="task")
    await _deliver(agent, home, answers)


async def _staffed(agent: WorldAgent, home: Path, answers: bool) -> None:
    """Members with routes, the first of which is responsible for revenue."""
    authority = AuthorityConfig(autonomous=("note", "qualify"), needs_approval=("pay",), forbidden=("sign",))
    given: dict[str, Any] = {
        "operator_ids": ("note", "qualify", "pay"),
        "authority": authority,
        "trust": TrustProfile(default=0.5),
        "routes": (
            Route(event="lead.*", operator="qualify", capability="qualify"),
            Route(event="deal.pay", operator="pay", capability="pay"),
            Route(event="deal.sign", operator="pay", capability="sign"),
        ),
    }
    for role_id, parent, domain in (("cro", "", "revenue"), ("bdr", "cro", "revenue"), ("coo", "", "operations")):
        more: dict[str, Any] = {**given, "domains": (domain,)}
        await agent.society.join(spec_of(role_id, parent, **more), name=role_id.upper())


def _event(id_: str, type_: str, domain: str = "revenue", **payload: Any) -> Event:
    return Event(
        id=id_,
        type=type_,
        source="charles",
        domain=domain,
        payload=payload or {"lead": id_},
        timestamp=datetime(2026, 2, 18, tzinfo=UTC),
        source_verified=True,
    )


_HAPPENED: Final = (
    (_event("e1", "lead.created"), None),
    (_event("e2", "lead.created"), None),
    (_event("e3", "deal.pay"), None),
    (_event("e4", "lead.created"), "coo"),
    (_event("e5", "deal.sign"), None),
    (_event("e6", "page.viewed", "marketing"), None),
    (_event("e7", "directive.spawn", template_id="rep", params={"place": "APAC"}), None),
    (_event("e8", "deal.sign"), "bdr"),
    (_event("e9", "lead.created"), "bdr"),
)


async def _handle(agent: WorldAgent, home: Path, answers: bool) -> None:
    for event, to in _HAPPENED:
        await agent.society.events.post(event, to=to)
    await _deliver(agent, home, answers)


@dataclass(frozen=True, slots=True)
class Case:
    """What is killed.

    Attributes:
        work: What is killed, and then done to its end.
        before: What is done before, in a process that is not killed.
        writes: The transactions that are killed first of all.
    """

    work: Step
    before: Step
    writes: tuple[str, ...]


CASES: Final = {
    "turn": Case(_turn, _joined, ("Society.spawn", "Mailroom.send_all")),
    "deliver": Case(_deliver, _told, ("Mailroom.send_all", "Mailroom.answer", "Mailroom.ended")),
    "ask": Case(_deliver, _counted, ("a person's answer", "Mailroom.ended")),
    "group": Case(_deliver, _voted, ("a person's answer", "Mailroom.ended", "Mailroom.send_all")),
    "spawn": Case(_spawn, _joined, ("Society.spawn",)),
    "budgets": Case(_spend, _limited, ("Mailroom.prepared", "Budgets.reserve", "Budgets._settle", "Mailroom.ended")),
    "end": Case(_end, _learned, ("Society.terminate", "Society.memory_done", "Entries.add")),
    "board": Case(_reassign, _briefed, ("Board.reassign", "Mailroom.answer", "Mailroom.send_all")),
    "events": Case(_handle, _staffed, ("Events.post", "Events.route", "Events.pause", "Events.settle")),
}


# --- the kills --------------------------------------------------------------------------------------------------------


async def _run(step: Step, home: Path, answers: bool = True) -> None:
    async with agent_of(home) as agent:
        await step(agent, home, answers)


_ANY_ORDER: Final = ("bdr did", "cro ran did", "cro paid did")
"""Effects that wait for a person, or for another member, and come in another order after a kill."""


def _outcome(home: Path) -> dict[str, list[str]]:
    """What a society came to: its messages and effects in the order of each pair, its contacts, and what waits."""
    mail, effects = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    query = "SELECT sender, receiver, kind, content, payload, chain FROM wa_mail ORDER BY place"
    for sender, receiver, *told in rows_of(home, query):
        notice = told[1].partition(" is used to ")[0].partition(", and ")[0]
        # What a notice about a budget says of calls and tokens has those that were under way at a kill at their bound.
        mail[f"{sender} to {receiver}"].append(notice if "The budget of" in notice else str(told))
    for line in lines(home / _EFFECTS):
        effects[f"{line.partition(':')[0]} did"].append(line)
    contacts = rows_of(home, "SELECT owner, id, introduced_by, note FROM wa_contact")
    left = rows_of(home, "SELECT id, state FROM wa_mail WHERE state <> 'handled' AND receiver <> 'user'")
    open_turns = rows_of(home, "SELECT status, COUNT(*) FROM wa_turn GROUP BY status")
    happened = "SELECT id, member, state, trail, result, code FROM wa_occurrence ORDER BY id"
    outcomes = "SELECT episode, member, capability, succeeded FROM wa_outcome ORDER BY episode"
    return {
        "events": [str(tuple(row)) for row in rows_of(home, happened)],
        "outcomes": [str(tuple(row)) for row in rows_of(home, outcomes)],
        "episodes": sorted(str(row[0]) for row in rows_of(home, "SELECT text FROM wa_entry WHERE kind='episode'")),
        "trust": [str(tuple(row)) for row in rows_of(home, "SELECT id, trust FROM wa_member ORDER BY id")],
        # An event that waits for a person holds up no later one, so the owner receives reports in another order.
        **{pair: sorted(told) if pair.endswith(" to user") else told for pair, told in mail.items()},
        **{who: sorted(did) if who in _ANY_ORDER else did for who, did in effects.items()},
        "contacts": sorted(map(str, map(list, contacts))),
        "left": sorted(map(str, map(list, left))),
        "turns": sorted(map(str, map(list, open_turns))),
        "steps": [str([*row]) for row in rows_of(home, _STEPS)],
        "insights": sorted(str([*row]) for row in rows_of(home, _INSIGHTS)),
        "board": sorted(str([*row]) for row in rows_of(home, _BRIEFS)),
        "due": [str([*row]) for row in rows_of(home, "SELECT member, work FROM wa_memory_due")],
    }


@dataclass
class Matrix(Copies):
    """The kills of one case; `name` is one of `CASES`.

    Attributes:
        expected: What the work comes to without a kill.
    """

    expected: dict[str, list[str]] = field(default_factory=dict)

    def begin(self, home: Path) -> bool:
        return forked_result(lambda: asyncio.run(_run(self._case.before, home)))[0] == 0

    def work(self, home: Path, killer: Killer, answers: bool = True) -> Passed:
        armed(killer)
        killer.on = True
        asyncio.run(_run(self._case.work, home, answers))
        return killer.counted()

    def points(self) -> list[Point]:
        """Every point that the work passes; `expected` is what it comes to without a kill."""
        home = self.home()
        points = self.counted(home)
        assert (wrong := problems_of(home)) == [], (self.name, wrong)
        self.expected = _outcome(home)
        removed(home)
        return [each for each in points if each.what not in _UPKEEP]

    def kill(self, point: Point) -> dict[str, Any]:
        """Kill at `point`, do the work to its end in another process, and say what came of it."""
        home = self.killed(point)
        broken = problems_of(home)
        code, _ = forked_result(lambda: asyncio.run(_run(self._case.work, home)))
        assert code == 0, f"{self.name}: it could not be done to its end after {point}"
        return self._told(home, point, broken)

    def kill_one_of_two(self, point: Point) -> dict[str, Any]:
        """Kill one of two processes that deliver at once at `point`; the other one goes on to the end."""
        home = self.home()
        doomed = Killer(point, home / "where", at_once=True)
        other = started(lambda: asyncio.run(_run(self._case.work, home)))
        code, _ = forked_result(lambda: self.work(home, doomed, False))
        assert code in (0, -signal.SIGKILL), f"{self.name}: {point}: the work ended with {code}"
        end = os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])
        assert end == 0, f"{self.name}: the other process ended with {end} after {point}"
        return {**self._told(home, point, []), "struck": code != 0}

    def _told(self, home: Path, point: Point, broken: list[str]) -> dict[str, Any]:
        outcome, broken = _outcome(home), broken + problems_of(home)
        removed(home)
        names = outcome.keys() | self.expected.keys()
        wrong = {
            name: (outcome.get(name), self.expected.get(name))
            for name in names
            if outcome.get(name) != self.expected.get(name)
        }
        return {
            "case": self.name,
            "point": f"{point.when} {point.what} {point.nth}",
            "broken": broken,
            "differs": wrong,
        }

    @property
    def _case(self) -> Case:
        return CASES[self.name]


def found(
    *, engine: Engine, cases: Sequence[str], sample: int | None = None, seed: int = 0, two: bool = False
) -> Iterator[dict[str, Any]]:
    """Kill at every point of the cases, or at so many in the commit of what a society writes, right after it, and
    anywhere.

    Args:
        engine: Where the society is.
        cases: Some of `CASES`.
        sample: How many of either kind; None is all points.
        seed: What chooses them.
        two: Whether another process does the same at the same time.
    """
    source = random.Random(seed)
    for name in cases:
        with tempfile.TemporaryDirectory() as folder:
            matrix = Matrix(name, Path(folder), engine)
            points = matrix.points()
            if two:  # each of the two passes some of them
                points = [each for each in points if each.nth == 1]
            near = [each for each in points if each.what in CASES[name].writes and each.when in (WITHIN, AFTER)]
            chosen = points if sample is None else [*some(near, sample, source), *some(points, sample, source)]
            yield from map(matrix.kill_one_of_two if two else matrix.kill, chosen)


if __name__ == "__main__":
    be_program(found)
