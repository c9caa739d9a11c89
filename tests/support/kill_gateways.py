"""Messages between processes that are killed at random: the sender, two gateways and the broker that wakes them.

As a program it prints a JSON object for each run, with what is wrong after it. Each process is a fork of this one.
"""

import asyncio
import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.agents import approving, calls, open_pauses
from support.brokers import NatsServer, nats_server
from support.databases import Engine, made, removed, rows_of
from support.kill_points import bare_agent
from support.processes import add, be_program, forked, lines, started
from support.role_specs import spec_of, workspace_of
from support.society_tables import problems_of
from worldagent import WorldAgent, tool
from worldagent.core.pauses import Happened, RunAgain
from worldagent.members import SEND_RULES, AuthorityConfig, Contact, Gateway
from worldagent.testing import ScriptedCall

_BOUND: Final = 240  # seconds
_EFFECTS: Final = "effects"  # the file of a home with a line for each message that was acted on
_FIRST: Final = ("cro", "coo")
"""The members to whom the sender writes. Each forwards what it reads to `qa`."""
_MEMBERS: Final = (*_FIRST, "qa")
_TEXT: Final = re.compile(r"\b(?:root|cro|coo) \d+\b")


def _reply(call: ScriptedCall) -> dict[str, Any]:
    [found, *_] = _TEXT.findall(str(call.fields["message"]))
    who = next(each for each in _MEMBERS if f"You are {each}." in call.text)
    forwarded = {"to": "qa", "content": f"{who} {found.rpartition(' ')[2]}", "reason": "A test."}
    todo = [("note", {"what": f"{who}: {found}"}), *([] if who == "qa" else [("send_message", forwarded)])]
    return {"result": "Done."} if (at := len(call.steps)) == len(todo) else {"result": "", **calls(todo[at])}


def _agent(home: Path, url: str) -> WorldAgent:
    @tool(risk="write")
    async def note(what: str) -> str:
        add(home / _EFFECTS, what)
        return what

    rules = (*SEND_RULES, approving("note", after="*", arguments={"what": "*"}))
    return bare_agent(home, _reply, rules=rules, society=workspace_of(), tools=[note], settings={"nats_url": url})


async def _join(home: Path, url: str) -> None:
    async with _agent(home, url) as agent:
        for member in _MEMBERS:
            able = AuthorityConfig(autonomous=("note",))
            await agent.society.join(spec_of(member, operator_ids=("note",), authority=able))
        for member in _FIRST:
            await agent.society.contacts.add(member, Contact(id="qa", role="QA"))


async def _send(home: Path, url: str, count: int) -> None:
    async with _agent(home, url) as agent:
        for number in range(count):
            for member in _FIRST:
                await agent.society.mail.send("root", member, f"root {number}", message_id=f"{member} {number}")


async def _deliver(home: Path, url: str) -> None:
    async with _agent(home, url) as agent, Gateway(agent, poll=1):
        await asyncio.Event().wait()


async def _finish(home: Path, url: str, count: int) -> None:
    """Say of each call that was cut off whether it happened, until the gateways have delivered everything."""
    async with _agent(home, url) as agent, asyncio.timeout(_BOUND):
        gateway = Gateway(agent)
        while len(lines(home / _EFFECTS)) < 4 * count or await agent.society.mail.waiting():
            for member in _MEMBERS:
                thread = agent.thread(f"member {member}", account=f"member:novel/{member}")
                for pause in await open_pauses(thread):
                    assert (pause.kind, pause.function) == ("uncertain", "note"), pause
                    await gateway.enlist(member)
                    what = pause.arguments["what"]
                    await thread.resume({pause.id: Happened(what) if what in lines(home / _EFFECTS) else RunAgain()})
            await asyncio.sleep(0.05)


@dataclass
class _Run:
    """The processes of one run.

    Attributes:
        home: The home that they share.
        broker: The broker.
        count: How many messages the sender sends to each of two members.
        source: What chooses when a process is killed.
        alive: The numbers of the processes, by what they do.
    """

    home: Path
    broker: NatsServer
    count: int
    source: random.Random
    alive: dict[str, int] = field(default_factory=dict)

    def begin(self, name: str) -> None:
        work: dict[str, Callable[[], object]] = {
            "sender": lambda: asyncio.run(_send(self.home, self.broker.url, self.count)),
            "gateway": lambda: asyncio.run(_deliver(self.home, self.broker.url)),
            "other gateway": lambda: asyncio.run(_deliver(self.home, self.broker.url)),
        }
        self.alive[name] = started(work[name])

    def kill(self, name: str) -> None:
        """Kill a process, and start it again a moment later."""
        if name == "broker":
            self.broker.kill()
            self.wait(0.3)
            self.broker.start()
            return
        self.end(name)
        self.wait(0.1)
        self.begin(name)

    def end(self, name: str) -> None:
        os.kill(self.alive[name], signal.SIGKILL)  # one that has ended is still there to be waited for
        os.waitpid(self.alive.pop(name), 0)

    def wait(self, most: float) -> None:
        time.sleep(self.source.uniform(0, most))


def _wrong(home: Path, count: int) -> list[str]:
    """What a run left that differs from one without kills."""
    wrong, total = list(problems_of(home)), 4 * count
    mail = rows_of(home, "SELECT receiver, sender, content FROM wa_mail ORDER BY place")
    effects = lines(home / _EFFECTS)
    for sender, receiver in [*(("root", each) for each in _FIRST), *((each, "qa") for each in _FIRST)]:
        expected = [f"{sender} {number}" for number in range(count)]
        stored = [content for to, by, content in mail if (to, by) == (receiver, sender)]
        done = [line.partition(": ")[2] for line in effects if line.startswith(f"{receiver}: {sender} ")]
        wrong += [f"{sender} to {receiver}: {found}" for found in (stored, done) if found != expected]
    turns = rows_of(home, "SELECT status, COUNT(*) FROM wa_turn GROUP BY status")
    left = rows_of(home, "SELECT id, state FROM wa_mail WHERE state <> 'handled'")
    return [*wrong, *([] if list(map(tuple, turns)) == [("done", total)] else [f"turns: {turns}"]), *map(str, left)]


def found(*, engine: Engine, count: int, kills: int, runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Send, deliver and kill, and say what is wrong after each run.

    Args:
        engine: Where the messages are.
        count: How many messages the sender sends to each of two members.
        kills: How often something is killed in each run.
        runs: How many runs.
        seed: What chooses who is killed, and when.
    """
    source = random.Random(seed)
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder, nats_server(Path(folder) / "nats") as broker:
            home = made(engine, Path(folder) / "home")
            assert forked(lambda: asyncio.run(_join(home, broker.url))) == 0  # noqa: B023 -- it ends before the next run
            run = _Run(home, broker, count, source)
            for name in ("gateway", "other gateway", "sender"):
                run.begin(name)
            names = ["sender", "broker", "gateway", "other gateway"] * kills
            chosen = [*source.sample(names[:4], min(kills, 4)), *source.sample(names, max(0, kills - 4))]
            for name in chosen:
                run.wait(1.0)
                run.kill(name)
            assert os.waitstatus_to_exitcode(os.waitpid(run.alive.pop("sender"), 0)[1]) == 0
            assert forked(lambda: asyncio.run(_finish(home, broker.url, count))) == 0  # noqa: B023 -- likewise
            for name in [*run.alive]:
                run.end(name)
            yield {"killed": chosen, "wrong": _wrong(home, count)}
            removed(home)


if __name__ == "__main__":
    be_program(found)
