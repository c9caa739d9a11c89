"""What stands in the tables of an agent's database, where no method tells of it. `support.homes` counts by home."""

import contextlib
import hashlib
import itertools
import json
import os
import sqlite3
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from worldagent import WorldAgent
from worldagent.agent import Thread
from worldagent.agent.stores import CheckpointRows
from worldagent.harness import tool
from worldagent.memory import Draft
from worldagent.memory.log import rows_of
from worldagent.storage import Database, Transaction
from worldagent.testing import ScriptedCall, ScriptedLM, scan_for_roles


def database_of(agent: WorldAgent) -> Database:
    """The database of an agent that is open."""
    return agent._runner.parts.stores.database


def checkpoints_of(agent: WorldAgent) -> CheckpointRows:
    """The tables of checkpoints in it."""
    return agent._runner.parts.stores.checkpoints


async def selected(agent: WorldAgent, query: str, *given: object) -> list[tuple[Any, ...]]:
    """The rows that a query gives, with a value for each `?`."""
    return await database_of(agent).read(lambda transaction: transaction.execute(query, given))


async def gates(agent: WorldAgent, name: str) -> list[Any]:
    """The decisions about the calls of a function, as the journal keeps them."""
    found = await selected(agent, "SELECT gate FROM wa_call WHERE name=? ORDER BY at, id", name)
    return [json.loads(gate) for (gate,) in found]


async def rows(agent: WorldAgent, table: str, where: str = "1=1", *given: object) -> int:
    """How many rows a table has."""
    [(found,)] = await selected(agent, f"SELECT COUNT(*) FROM {table} WHERE {where}", *given)
    return int(found)


async def change(agent: WorldAgent, statement: str, *given: Sequence[object]) -> None:
    """Run a statement with each of `given`, in one transaction."""

    def work(transaction: Transaction) -> None:
        for values in given:
            transaction.execute(statement, values)

    await database_of(agent).transact(work)


async def branched(agent: WorldAgent, name: str, parent: str | None, *drafts: Draft, root: str = "") -> None:
    """Make a thread with messages that no turn of this package wrote, after a message of the thread `t1`."""
    stores, key = agent._runner.parts.stores, f"novel/{name}"
    head = await stores.log.append(parent, drafts, thread=root or key, turn_id="turn") if drafts else parent
    async with stores.leases.hold(key, wait=1) as lease:
        await stores.branches.add(stores.branches.branch(key, head, origin="novel/t1"), lease=lease)


def counting() -> ScriptedLM:
    """A model whose answers are `a1`, `a2` and so on, and whose workers say `done`."""
    numbers = itertools.count(1)

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"result": "done"} if "request" in call.fields else {"reply": f"a{next(numbers)}", "calls": []}

    return ScriptedLM(reply)


async def said(thread: Thread) -> list[str]:
    """What was said on a thread, page by page, each message by its text or its kind."""
    found: list[str] = []
    before: str | None = None
    while page := await thread.history(before=before, limit=3):
        found = [str(message.body.get("text", message.kind)) for message in page] + found
        before = page[0].id
    return found


async def ids(thread: Thread) -> list[str]:
    """The ids of its messages."""
    return [message.id for message in await thread.history(limit=1000)]


def row_counts(home: Path) -> dict[str, int]:
    """How many rows each table of the agent's database has."""
    if url := os.environ.get("WORLDAGENT_DATABASE_URL"):
        from support.postgres import rows

        names = rows(url, "SELECT tablename FROM pg_tables WHERE schemaname='public'")
        return {name: rows(url, f"SELECT count(*) FROM {name}")[0][0] for (name,) in names}
    with contextlib.closing(sqlite3.connect(home / "agent.db")) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        return {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in names}


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """By how many rows tables grew."""
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}


def word(place: str) -> str:
    """A text that is said in a place; no 40 letters of one are in another."""
    return (f"the {place} " * 8).strip()


PLACES = ("message", "answer", "request", "verdict", "argument", "result", "question")
WORDS = {place: word(place) for place in PLACES}


@tool
async def look(what: str) -> str:
    return WORDS["result"]


async def pay(what: str) -> str:
    return WORDS["result"]


def found(home: Path, texts: Sequence[str]) -> list[str]:
    """Where one of `texts` stands: in a file of the home, or a table of its database."""
    things: list[object] = [home]
    if url := os.environ.get("WORLDAGENT_DATABASE_URL"):
        from support.postgres import table_bytes

        things.append(table_bytes(url))
    return [str(finding) for finding in scan_for_roles(things, texts).findings]


Line = dict[str, Any]


def read(file: Path) -> list[Line]:
    """The lines of an export."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(file: Path, lines: list[Line]) -> None:
    """Write lines with the checksum that belongs to them; the last one has a place for it."""
    body = "".join(f"{json.dumps(line)}\n" for line in lines[:-1])
    end = {**lines[-1], "sha256": hashlib.sha256(body.encode()).hexdigest()} if "sha256" in lines[-1] else lines[-1]
    file.write_text(f"{body}{json.dumps(end)}\n", encoding="utf-8")


def renamed(lines: list[Line]) -> list[Line]:
    """The lines with the ids that follow from what the messages say now, wherever one is named.

    Raises:
        Exception: A message is such that no id follows from it.
    """
    names: dict[str, str] = {}
    said: list[Line] = []
    for each in lines[1:]:
        line = _with(each, names)
        if "author" in line or "turn" in line:
            draft = Draft(line["author"], line["kind"], line["body"])
            [row] = rows_of(line["parent"], [draft], thread=lines[0]["root"], turn_id=line["turn"])
            names[str(line["id"])] = row.id
            line["id"] = row.id
        said.append(line)
    return [_with(lines[0], names), *said]


def _with(line: Line, names: Mapping[str, str]) -> Line:
    text = json.dumps(line)
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    found: Line = json.loads(text)
    return found


PNG = b"\x89PNG\r\n\x1a\n" + b"a small picture"
OTHER_PNG = b"\x89PNG\r\n\x1a\n" + b"another picture"
PDF = b"%PDF-1.7\na small paper"
ADDRESS = "https://pictures.example/lake.jpg"


def data_uri(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def pieces(home: Path) -> dict[str, bytes]:
    """Every file of the store, by its name, hidden ones as well."""
    found = [path for path in (home / "attachments").rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in found}
