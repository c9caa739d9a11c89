"""A week of the example workspace: processes that are killed, souls and tools that change meanwhile, a full inbox.

Each process has the members with the souls of its version, posts some events and messages, and delivers until it is
killed. People answer in processes of their own, without a gateway. As a program it prints what is wrong at the end.
"""

import asyncio
import os
import random
import re
import signal
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from support.agents import calls, open_pauses
from support.databases import Engine, made, removed, rows_of, storage_of
from support.house import ROOT
from support.processes import add, be_program, forked, lines, started
from support.society_tables import problems_of
from worldagent import Approve, Happened, Policy, Reject, Rule, RunAgain, Settings, WorldAgent, tool
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import AlreadyAnswered, CallRefused, GraphChanged, MailboxFull, NothingToResume, ThreadBusy
from worldagent.core.pauses import Pause
from worldagent.harness import Function
from worldagent.members import SEND_RULES, Event, Gateway, WorkspaceConfig, load_workspace
from worldagent.members.life.outcomes import outcomes_of, replayed
from worldagent.members.mail import letters as mail
from worldagent.testing import ScriptedCall, ScriptedLM

_BOUND: Final = 300  # seconds
EFFECTS: Final = "effects"
"""The file of a home with a line for each effect."""

TRUST: Final = "trust"
"""The file of a home with a line for each member whose trust is not that of a replay."""

LIVED: Final = "lived"
"""The file of a home with the first event of each process that has posted its events."""

_FILE: Final = ROOT / "examples" / "autonomous_workspace" / "demo.yaml"
_ROOM: Final = 40  # letters of an inbox; the owner reads none
_KINDS: Final = (
    ("lead.created", "revenue"),
    ("lead.created", "emea"),
    ("deal.discount", "deals"),
    ("lead.created", "amer"),
    ("deal.signature", "deals"),
    ("page.viewed", "nobody"),
)
_TEXT: Final = re.compile(r"\b(Offer|Ask|Answer) (m\d+)\b")
_PASSING: Final = (AlreadyAnswered, CallRefused, GraphChanged, NothingToResume, ThreadBusy)
"""What a person can be told: another process was faster, the person said no, or the turn can never resume."""


def _say(call: ScriptedCall) -> dict[str, Any]:
    """What members do with a message: offer a discount, or ask a colleague, who answers."""
    found = _TEXT.search(str(call.fields["message"])) if "task" in call.fields else None
    if found is None:
        return {"result": "Noted."} if "task" in call.fields else {"reply": "Noted."}
    what, number = found.groups()
    todo: dict[str, tuple[str, dict[str, Any]]] = {
        "Offer": ("offer_discount", {"company": number, "percent": 5}),
        "Ask": ("request_role", {"to": "bdr-emea", "content": f"Answer {number}", "reason": "So.", "seconds": 3}),
        "Answer": ("send_message", {"to": "cro", "content": f"Seven for {number}", "reason": "So."}),
    }
    return {"result": "Done."} if call.steps else {"result": "", **calls(todo[what])}


def _tools(home: Path, version: int) -> list[Function]:
    """What members run. Each third version declares a discount in another way."""

    async def effect(company: str) -> str:
        add(home / EFFECTS, company)
        await asyncio.sleep(0.01)  # so that some are killed here
        return company

    @tool(risk="write")
    async def qualify_lead(company: str, seats: int) -> str:
        """Qualify a lead."""
        return await effect(company)

    if version % 3 == 2:

        @tool(risk="destructive", name="offer_discount")
        async def dated_discount(company: str, percent: int, until: str = "") -> str:
            """Offer a discount."""
            return await effect(company)

        return [qualify_lead, dated_discount]

    @tool(risk="destructive")
    async def offer_discount(company: str, percent: int) -> str:
        """Offer a discount."""
        return await effect(company)

    return [qualify_lead, offer_discount]


def _config(version: int) -> WorkspaceConfig:
    """The workspace of the example, whose members have other souls in each version."""
    config = load_workspace(_FILE)
    return replace(config, roles=tuple(replace(each, soul=f"{each.soul} ({version})") for each in config.roles))


class Week(NamedTuple):
    """What happens in a week, and who answers.

    Attributes:
        agent: Makes the agent of a home and a version.
        happens: Posts events by their numbers: the first one, and how many. A second time it changes nothing.
        answer: What people say to a pause of the agent of a home.
        wrong: Says what is wrong at the end of a home, with how many events.
    """

    agent: Callable[[Path, int], WorldAgent]
    happens: Callable[[WorldAgent, int, int], Awaitable[None]]
    answer: Callable[[Path, Pause], object]
    wrong: Callable[[Path, int], list[str]]


def _agent(home: Path, version: int) -> WorldAgent:
    mail.MAX_WAITING = _ROOM  # type: ignore[misc]  # a whole inbox takes too long; each process is a fork of its own
    return WorldAgent(
        "vibe-team",
        lm=ScriptedLM(_say),
        society=_config(version),
        tools=_tools(home, version),
        policy=Policy(rules=(*SEND_RULES, Rule(decision="approve", function="qualify_lead"))),
        storage=storage_of(home),
        settings=Settings(model_attempts=1, trace=False, graph_changed_grace=1),
    )


def _event(number: int) -> Event:
    type_, domain = _KINDS[number % len(_KINDS)]
    payload: dict[str, Any] = {"company": f"e{number}"}
    payload |= {"percent": 5} if type_.startswith("deal") else {"seats": 20}
    at = datetime(2026, 2, 18, tzinfo=UTC)
    return Event(id=f"e{number}", type=type_, source="hubspot", domain=domain, payload=payload, timestamp=at)


async def _happens(agent: WorldAgent, first: int, count: int) -> None:
    """Post events, and a message for every third of them. A second time it changes nothing."""
    for number in range(first, first + count):
        await agent.society.events.post(_event(number))
        if number % 3 == 0:
            text = "Ask" if number % 2 else "Offer"
            with suppress(MailboxFull):
                await agent.society.mail.send("root", "cro", f"{text} m{number}", message_id=f"m{number}")


async def _lives(week: Week, home: Path, version: int, first: int, count: int) -> None:
    async with week.agent(home, version) as agent, Gateway(agent, poll=0.2):
        await week.happens(agent, first, count)
        add(home / LIVED, str(first))
        await asyncio.Event().wait()


def _agrees(company: str) -> bool:
    """What people decide about a company, the same each time."""
    return zlib.crc32(company.encode()) % 4 != 0


def _answer(home: Path, pause: Pause) -> object:
    company = str(pause.arguments["company"])
    if pause.kind == "uncertain":
        return Happened(company) if company in lines(home / EFFECTS) else RunAgain()
    return Approve() if _agrees(company) else Reject("no")


async def _answers(week: Week, agent: WorldAgent, home: Path) -> int:
    """Answer what waits for people, as they do without a gateway; returns how many turns wait, also for replies."""
    waiting = await agent.threads(status="paused", archived=None, limit=1000)
    for state in waiting:
        thread = agent.thread(state.thread, account=state.account)
        found = {each.id: week.answer(home, each) for each in await open_pauses(thread) if each.kind != "reply"}
        if found:
            with suppress(*_PASSING):
                await thread.resume(found)
    return len(waiting)


async def _people(week: Week, home: Path, version: int) -> None:
    async with week.agent(home, version) as agent:
        await _answers(week, agent, home)


async def _ends(week: Week, home: Path, version: int, count: int) -> None:
    """Deliver and answer until nothing is left, and compare the trust of members with a replay."""
    async with week.agent(home, version) as agent, asyncio.timeout(_BOUND):
        await week.happens(agent, 0, count)
        gateway = Gateway(agent)
        while True:
            moved = await gateway.deliver()
            left = await _answers(week, agent, home)
            events = [each for each in await agent.society.events.list(limit=count) if each.state != "done"]
            if not (moved or left or events or await agent.society.mail.waiting()):
                break
            await asyncio.sleep(0.05)
        workspace = agent.society.config.id
        for role_id in await agent.society.members.ids(workspace):
            member = await agent.society.members.member(workspace, role_id)
            done = await inside(agent).stores.database.read(partial(outcomes_of, member=member))
            if member.trust != replayed(member, done):
                add(home / TRUST, f"{member.id}: {member.trust} is not {replayed(member, done)}")


def _wrong(home: Path, count: int) -> list[str]:
    """What was lost, was done twice or is stuck."""
    wrong, effects = [*problems_of(home), *lines(home / TRUST)], Counter(lines(home / EFFECTS))
    wrong += [f"{company} {number} times" for company, number in effects.items() if number > 1]
    events = rows_of(home, "SELECT id, state, result, code FROM wa_occurrence")
    wrong += [] if len(events) == count else [f"{len(events)} events"]
    for id_, state, result, code in events:
        did = effects[id_]
        ended = {"done": did == 1, "refused": did == 0, "escalated": did == 0}.get(result, code == "graph_changed")
        wrong += [] if state == "done" and ended else [f"event {id_}: {state} {result} {code}, {did} effects"]
    sent = {row[0]: row[1] for row in rows_of(home, "SELECT id, content FROM wa_mail WHERE receiver='cro'")}
    failed = {row[0] for row in rows_of(home, "SELECT answers FROM wa_mail WHERE id LIKE '%.failed'")}
    for id_, text in sent.items():
        if text.startswith("Offer") and id_ not in failed and effects[id_] != _agrees(id_):
            wrong.append(f"message {id_}: {effects[id_]} effects")
    left = "SELECT id, state FROM wa_mail WHERE state IN ('waiting', 'handling') AND receiver <> 'user'"
    turns = "SELECT name, status, code FROM wa_turn WHERE status NOT IN ('done', 'failed', 'cancelled', 'abandoned')"
    codes = "SELECT name, code FROM wa_turn WHERE code = 'thread_paused'"
    return [*wrong, *(str([*row]) for query in (left, turns, codes) for row in rows_of(home, query))]


EXAMPLE: Final = Week(_agent, _happens, _answer, _wrong)


def lived(week: Week, home: Path, *, events: int, each: int, seed: int) -> tuple[int, int]:
    """Live through a week in a home, to its end; returns how many processes were killed, and how many versions it had.

    Args:
        week: The week.
        home: The home.
        events: How many events happen.
        each: How many of them happen before the process is killed.
        seed: What chooses when processes are killed, and the versions.
    """
    source, version, kills = random.Random(seed), 0, 0
    for first in range(0, events, each):
        version += source.random() < 0.6  # else the process starts again as it was
        doomed = started(lambda: asyncio.run(_lives(week, home, version, first, each)))  # noqa: B023 -- it ends in here
        late, end = source.random() < 0.8, time.monotonic() + _BOUND
        while late and str(first) not in lines(home / LIVED) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(source.uniform(0, 3))
        os.kill(doomed, signal.SIGKILL)
        kills += os.waitstatus_to_exitcode(os.waitpid(doomed, 0)[1]) == -signal.SIGKILL
        version += source.random() < 0.2
        if source.random() < 0.4:
            assert forked(lambda: asyncio.run(_people(week, home, version))) == 0  # noqa: B023 -- likewise
    assert forked(lambda: asyncio.run(_ends(week, home, version, events))) == 0
    return kills, version + 1


def found(*, engine: Engine, events: int, each: int, seed: int) -> Iterator[dict[str, Any]]:
    """Live through a week of the example, and say what is wrong at its end; the arguments are those of `lived`."""
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder) / "home")
        kills, versions = lived(EXAMPLE, home, events=events, each=each, seed=seed)
        inbox = rows_of(home, "SELECT COUNT(*) FROM wa_mail WHERE receiver='user' AND state='waiting'")
        ended = rows_of(home, "SELECT COUNT(*) FROM wa_turn WHERE stale IS NOT NULL AND status='failed'")
        yield {
            "wrong": _wrong(home, events),
            "kills": kills,
            "versions": versions,
            "inbox": inbox[0][0],
            "ended": ended[0][0],
        }
        removed(home)


if __name__ == "__main__":
    be_program(found)
