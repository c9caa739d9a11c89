"""Writes of memory entries in a process that is killed at any point, and the same done again in another process.

As a program it kills at all points of the cases given, or at some of them, and prints a JSON object for each kill. Each
process is a fork of this one, which has everything loaded.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.agents import calls, open_pauses
from support.databases import Engine, contents_of, copied, removed, rows_of
from support.homes import rows
from support.kill_points import AFTER, BEFORE, IN, WITHIN, Copies, Killer, Passed, Point, armed, bare_agent, some
from support.memory_tables import problems_of
from support.processes import be_program, forked_result
from worldagent import Approve, Memory, WorldAgent
from worldagent.core.errors import EntryChanged, NothingToResume, UnknownEntry
from worldagent.storage import sqlite as lane
from worldagent.testing import ScriptedCall

BONN, ULM, NUTS = (
    "Ana lives in Bonn, in the street of the old tanners.",
    "Ana lives in Ulm, by the river.",
    "Ana eats no nuts.",
)
OPENS, SHUTS = "The harbour opens at six.", "The harbour shuts at nine."
RED, BLUE = "The ferry to the island is red.", "The ferry to the island is blue."
MOVED = "Ana has moved, so note it."
REWRITE: Final = "the file's rewrite"
_BOUND = 60  # seconds
_STEPS = 200  # of SQLite's machine, between two points in the middle of a rewrite
_ROWS = "SELECT e.owner, e.text, e.version, n.text FROM wa_entry e LEFT JOIN wa_entry n ON n.key=e.replaced"
_ID = "id"  # the file of a home with the id of an entry

Step = Callable[[WorldAgent, Path], Awaitable[object]]


async def _open(agent: WorldAgent, home: Path) -> None:
    """Wait for what an agent does when it opens: it reads the files, and finishes what was being forgotten."""
    async with asyncio.timeout(_BOUND):
        while await rows(agent, "wa_rewrite"):
            pass  # each look lets the agent go on


@dataclass(frozen=True, slots=True)
class Case:
    """What is killed.

    Attributes:
        work: What is killed, and then done again to its end.
        writes: The transactions that write entries.
        states: The entries that can be there after the kill; the last are there once the work was done again.
        before: What is done before, in a process that is not killed.
        files: Files with entries, before that.
        gone: What is in no file and no table once the work was done again.
    """

    work: Step
    writes: tuple[str, ...]
    states: tuple[list[str], ...]
    before: Step = _open
    files: tuple[tuple[str, str], ...] = ()
    gone: tuple[str, ...] = ()


# --- the cases --------------------------------------------------------------------------------------------------------


async def _write(agent: WorldAgent, home: Path) -> None:
    await agent.memory.add(NUTS, account="ana", key="nuts")
    await agent.memory.import_lines([{"id": text, "text": text} for text in (OPENS, SHUTS)])


async def _bonn(agent: WorldAgent, home: Path) -> None:
    (home / _ID).write_text((await agent.memory.add(BONN, account="ana")).id)


async def _edit(agent: WorldAgent, home: Path) -> None:
    with contextlib.suppress(EntryChanged):
        await agent.memory.edit((home / _ID).read_text(), ULM, version=1, account="ana")


async def _remember(agent: WorldAgent, home: Path) -> None:
    await _turn(agent, "Keep in mind what I eat.")


async def _moved(agent: WorldAgent, home: Path) -> None:
    await _bonn(agent, home)
    await _turn(agent, MOVED)


async def _distil(agent: WorldAgent, home: Path) -> None:
    await agent.memory.distil("t")


async def _distilled(agent: WorldAgent, home: Path) -> None:
    await _moved(agent, home)
    [newer] = await agent.memory.distil("t")
    (home / _ID).write_text(newer.id)


async def _forget(agent: WorldAgent, home: Path) -> None:
    with contextlib.suppress(UnknownEntry):
        await agent.memory.forget((home / _ID).read_text(), account="ana")


async def _forget_in_turn(agent: WorldAgent, home: Path) -> None:
    await _turn(agent, f"Forget {(home / _ID).read_text()}")


async def _remove(agent: WorldAgent, home: Path) -> None:
    await agent.upkeep.remove("t")
    await agent.upkeep.prune()  # a removal whose thread is gone rewrites no file


async def _change_files(agent: WorldAgent, home: Path) -> None:
    (home / "notes" / "ferry.md").write_text(BLUE)
    (home / "notes" / "harbour.md").unlink()


_IN_BONN = [f"ana: {BONN} (1)"]
_IN_ULM = [f"ana: {BONN} (1), replaced by {ULM}", f"ana: {ULM} (1)"]
_FILES = [f": {RED} (1)", f": {OPENS} (1)"]
_WRITTEN = [f": {OPENS} (1)", f": {SHUTS} (1)", f"ana: {NUTS} (1)"]
CASES: Final = {
    "write": Case(_write, ("Entries.add",), ([], _WRITTEN[2:], _WRITTEN)),
    "edit": Case(_edit, ("Entries.edit",), (_IN_BONN, [f"ana: {ULM} (2)"]), _bonn),
    "remember": Case(_remember, ("Entries.add",), ([], [f"ana: {NUTS} (1)"])),
    "distil": Case(_distil, ("Entries.distilled",), (_IN_BONN, _IN_ULM), _moved),
    "forget": Case(_forget, ("Entries.forget",), (_IN_ULM, _IN_BONN), _distilled, gone=(ULM,)),
    "forget in a turn": Case(_forget_in_turn, ("Entries.forget",), (_IN_BONN, []), _bonn, gone=(BONN,)),
    "remove": Case(_remove, ("remove_rows",), (_IN_ULM, _IN_BONN), _distilled, gone=(ULM, MOVED)),
    "files": Case(
        _open,
        ("Entries.add", "Entries.forget"),
        (_FILES, [f": {BLUE} (1)", *_FILES], [f": {BLUE} (1)"]),
        _change_files,
        files=(("ferry.md", RED), ("harbour.md", OPENS)),
        gone=(RED, OPENS),
    ),
}


async def _turn(agent: WorldAgent, message: str) -> None:
    """Take a turn to its end, from wherever it is, and approve what it asks."""
    thread = agent.thread("t", account="ana")
    while True:
        try:
            await thread.resume({pause.id: Approve() for pause in await open_pauses(thread)})
        except NothingToResume:
            if await thread.history():
                return
            await thread.converse(message)


def _reply(call: ScriptedCall) -> dict[str, Any]:
    if "conversation" in call.fields:
        [older] = json.loads(call.fields["known"])
        return {"notes": [{"text": ULM, "replaces": older["id"]}]}
    message = str(call.fields["message"])
    if call.steps or message == MOVED:
        return {"reply": "Done."}
    _, _, entry = message.partition("Forget ")
    return {"reply": "", **calls(("forget", {"entry_id": entry}) if entry else ("remember", {"text": NUTS}))}


class _Lengths:
    """An embedder."""

    name = "lengths"

    async def __call__(self, texts: list[str], /) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in texts]


def agent_of(home: Path) -> WorldAgent:
    notes = home / "notes"
    memory = Memory(files=(notes,) if notes.exists() else (), embedder=_Lengths())
    return bare_agent(home, _reply, memory=memory)


# --- the kills --------------------------------------------------------------------------------------------------------


class _Rewriting:
    """A connection that rewrites its file and passes a point around each statement, and in the middle of it."""

    def __init__(self, connection: sqlite3.Connection, killer: Killer) -> None:
        self._connection, self._killer = connection, killer

    def execute(self, sql: str) -> sqlite3.Cursor:
        what = f"{REWRITE}: {sql}"
        self._killer.at(BEFORE, what)
        self._connection.set_progress_handler(lambda: self._killer.at(IN, what), _STEPS)
        try:
            done = self._connection.execute(sql)
        finally:
            self._connection.set_progress_handler(None, 0)
        self._killer.at(AFTER, what)
        return done


def _armed(killer: Killer) -> None:
    """Have the killer passed around each write, and in the rewrite of a file."""
    armed(killer)
    rewrite = lane._scrub

    def watched(connection: sqlite3.Connection, path: Path) -> None:
        rewrite(_Rewriting(connection, killer), path)  # type: ignore[arg-type]  # it does what is used of a connection

    lane._scrub = watched


async def _run(step: Step, home: Path) -> None:
    async with agent_of(home) as agent:
        await step(agent, home)


async def _left_open(step: Step, home: Path) -> None:
    """Do a step and never close the agent, since SQLite cleans up when the last process closes a file."""
    async with agent_of(home) as agent:
        await step(agent, home)
        os.kill(os.getpid(), signal.SIGKILL)


def _done(step: Step, home: Path) -> bool:
    """Do a step to its end in another process."""
    return forked_result(lambda: asyncio.run(_left_open(step, home)))[0] == -signal.SIGKILL


def _entries(home: Path) -> list[str]:
    rows = rows_of(home, _ROWS)
    return sorted(
        f"{owner}: {text} ({version})" + (f", replaced by {newer}" if newer else "")
        for owner, text, version, newer in rows
    )


class Matrix(Copies):
    """The kills of one case; `name` is one of `CASES`."""

    def begin(self, home: Path) -> bool:
        for name, text in self._case.files:
            (home / "notes").mkdir(exist_ok=True)
            (home / "notes" / name).write_text(text)
        return _done(self._case.before, home)

    def work(self, home: Path, killer: Killer) -> Passed:
        _armed(killer)
        killer.on = True
        asyncio.run(_run(self._case.work, home))
        return killer.counted()

    def kill(self, point: Point) -> dict[str, Any]:
        """Kill at `point`, do the work again in another process, and say what came of it."""
        home, case = self.killed(point), self._case
        killed, broken = self._look(home)
        assert _done(case.work, home), f"{self.name}: it could not be done again after {point}"
        left = [name for name, held in contents_of(home).items() for text in case.gone if text.encode() in held]
        again, broken_again = self._look(home)
        removed(home)
        return {
            "case": self.name,
            "point": f"{point.when} {point.what} {point.nth}",
            "killed": killed if killed not in case.states else case.states.index(killed),
            "again": again if again != case.states[-1] else len(case.states) - 1,
            "broken": broken + broken_again,
            "left": left,
        }

    def _look(self, home: Path) -> tuple[list[str], list[str]]:
        """The entries of a home and what is wrong with them, on SQLite from a copy: a look cleans its files up."""
        looked = home
        if self.engine == "sqlite":
            looked = self.folder / "looked"
            copied(home, looked)
        found = _entries(looked), problems_of(looked)
        if looked != home:
            removed(looked)
        return found

    @property
    def _case(self) -> Case:
        return CASES[self.name]


def found(
    *, engine: Engine, cases: Sequence[str], sample: int | None = None, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Kill at every point of the cases, or in the commit of so many writes of entries, and right after it."""
    source = random.Random(seed)
    for name in cases:
        with tempfile.TemporaryDirectory() as folder:
            matrix = Matrix(name, Path(folder), engine)
            near = [Point(when, what, 1) for when in (WITHIN, AFTER) for what in CASES[name].writes]
            yield from map(matrix.kill, matrix.counted(matrix.home()) if sample is None else some(near, sample, source))


if __name__ == "__main__":
    be_program(found)
