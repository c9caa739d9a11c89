"""A gateway that is killed while it talks to a remote agent, and the same done to its end in another process.

As a program it kills at each write and each call of the agent, or at some of them, and prints a JSON object for each
kill. Each process is a fork of this one; the agent is a process of its own, which lives on.
"""

import asyncio
import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.a2a_peers import TOKEN, TOKEN_VARIABLE, Kind, Peer, check_wire, free_port, peer
from support.databases import Engine, removed, rows_of
from support.kill_points import AFTER, BEFORE, Copies, Killer, Passed, Point, armed, bare_agent, some
from support.processes import be_program, forked_result
from support.role_specs import spec_of, workspace_of
from support.society_tables import problems_of
from worldagent import WorldAgent
from worldagent.members import Contact, Gateway

WRITES = ("RemoteMembers._advanced", "RemoteMembers._put", "Mailroom.send_all", "Mailroom.ended", "send", "get")
"""The transactions and the calls of the agent that are killed first of all."""


def _agent(home: Path, running: Peer) -> WorldAgent:
    roles = (spec_of("painter", remote=running.remote),)
    return bare_agent(home, [], society=workspace_of(roles=roles))


async def _begin(home: Path, running: Peer, text: str) -> None:
    async with _agent(home, running) as agent:
        await agent.society.contacts.add("user", Contact(id="painter", role="Painter"))
        await agent.society.mail.send("user", "painter", text, kind="request", message_id="m1")


async def _deliver(home: Path, running: Peer) -> None:
    async with _agent(home, running) as agent, asyncio.timeout(60):
        gateway = Gateway(agent, poll=0.05)
        while await agent.society.mail.waiting():
            await gateway.deliver()


def _watched(killer: Killer) -> None:
    """Have the killer passed around each call of the agent."""
    from worldagent.members.remote.client import RemoteClient

    def around(name: str) -> None:
        called = getattr(RemoteClient, name)

        async def call(self: Any, *given: Any, **more: Any) -> Any:
            killer.at(BEFORE, name)
            answer = await called(self, *given, **more)
            killer.at(AFTER, name)
            return answer

        setattr(RemoteClient, name, call)

    for name in ("send", "get"):
        around(name)


@dataclass
class Kills(Copies):
    """The kills of a delivery.

    Attributes:
        running: The agent.
    """

    running: Peer

    def begin(self, home: Path) -> bool:
        return forked_result(lambda: asyncio.run(_begin(home, self.running, self.name)))[0] == 0

    def work(self, home: Path, killer: Killer) -> Passed:
        armed(killer)
        _watched(killer)
        killer.on = True
        asyncio.run(_deliver(home, self.running))
        return killer.counted()


def found(*, engine: Engine, kind: Kind, sample: int | None = None, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Kill at every point, or at so many of them.

    Args:
        engine: Where the society is.
        kind: What the agent is made with.
        sample: How many; None is all.
        seed: What chooses them.
    """
    source, port = random.Random(seed), free_port()
    os.environ[TOKEN_VARIABLE] = TOKEN
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with peer(kind, folder / "counted", port) as running:
            kills = Kills("echo once", folder, engine, running)
            home = kills.home()
            points = [each for each in kills.counted(home) if each.what in WRITES and each.nth <= 3]
            removed(home)
        for place, point in enumerate(some(points, sample, source)):
            with peer(kind, folder / str(place), port) as running:  # one that knows nothing of the others
                kills.running = running
                yield _killed(kills, point)


def _killed(kills: Kills, point: Point) -> dict[str, Any]:
    """Kill at a point, deliver to the end in another process, and say what came of it."""
    home, running = kills.killed(point), kills.running
    code, _ = forked_result(lambda: asyncio.run(_deliver(home, running)))
    told = {
        "point": [point.when, point.what, point.nth],
        "ended": code,
        "mail": [[*row] for row in rows_of(home, "SELECT id, content, answers, state FROM wa_mail ORDER BY id")],
        "open": [[*row] for row in rows_of(home, "SELECT letter, stage FROM wa_remote WHERE stage <> 'over'")],
        "broken": problems_of(home),
        "effects": running.effects,
        "sent": [each["message"]["messageId"] for each in running.calls("SendMessage")],
        "messages": check_wire(running.noted("wire"), running.kind),
    }
    removed(home)
    return told


if __name__ == "__main__":
    be_program(found)
