"""A home with turns that wait, as a text that is kept for each release: later versions must resume them (D15).

As a program: `python tests/support/make_home.py` writes the home of the present version to `tests/fixtures/homes/`.

The agent here is what its users' code is to them: a change of it would be one of theirs, and old homes could not go
on. What a later version can do more goes into further turns.
"""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from worldagent import Role, Settings, Storage, Tier, WorldAgent
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import Worker, tool
from worldagent.testing import ScriptedCall, ScriptedLM

HOMES = Path(__file__).resolve().parents[1] / "fixtures" / "homes"
FILES = ("agent", "roles")
KEY = "a key to throw away, of fixtures alone"
HOUSE = Role("house", "Answer in short and plain sentences.")


class Order(BaseModel):
    what: str


class Receipt(BaseModel):
    text: str


class Gate:
    """Where an effect waits until the agent is told to stop."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()


def home_agent(home: Path, done: list[str], gate: Gate | None = None, *, key: str = KEY) -> WorldAgent:
    """The agent of the home; `done` gets its effects, `key` makes its digests of roles."""

    async def write(what: str) -> str:
        if what == "stops" and gate is not None:
            gate.reached.set()
            await gate.open.wait()
        done.append(f"write {what}")
        return what

    async def pay(what: str) -> str:
        done.append(f"pay {what}")
        return f"paid for the {what}"

    async def buy(order: Order, ctx: TaskContext) -> Receipt:
        return Receipt(text=await ctx.call("pay", {"what": order.what}))

    async def paint(order: Order, ctx: TaskContext) -> Receipt:
        for place in range(3):
            await ctx.call("write", {"what": f"{order.what} {place}"})
        judged = await ctx.task("subagent", {"worker": "critic", "request": f"Judge the {order.what}."})
        colour = await ctx.calls.ask_person(f"Which colour has the {order.what}?", ["red", "blue"])
        return Receipt(text=f"{colour}; {judged.text}")

    async def stop(order: Order, ctx: TaskContext) -> Receipt:
        first = await ctx.call("write", {"what": "stops"})
        return Receipt(text=f"{first}, {await ctx.call('write', {'what': order.what})}")

    return WorldAgent(
        "museum",
        lm=ScriptedLM(_reply),
        tools=[tool(name="write", risk="read_only")(write), tool(name="pay", approval=True)(pay)],
        workers=[Worker("critic", "You judge.", "judges"), Worker("buyer", "You buy.", "buys", tools=("pay",))],
        shapes=[
            Shape("buy", Order, Receipt, buy, description="buys a thing"),
            Shape("paint", Order, Receipt, paint),
            Shape("stop", Order, Receipt, stop),
        ],
        storage=Storage(home=home),
        settings=Settings(role_key=SecretStr(key), model_attempts=1),
    )


def _reply(call: ScriptedCall) -> dict[str, Any]:
    if call.fields.get("request") == "Buy a coat.":
        paying = {"calls": [{"tool": "pay", "arguments": {"what": "coat"}}]}
        return {"result": "It is bought."} if call.steps else paying
    if "request" in call.fields:
        return {"result": "It is fine."}
    told = " ".join(str(message) for message in call.messages)
    if "Is it fine?" in told:
        asking = {"reply": "I will ask.", "calls": [{"tool": "critic", "arguments": {"request": "Judge it."}}]}
        return {"reply": "They say that it is fine."} if call.steps else asking
    if call.steps:
        return {"reply": "It is bought."}
    if "Buy a hat" in told:
        return {"reply": "I will buy one.", "calls": [{"tool": "buy", "arguments": {"what": "hat"}}]}
    return {"reply": f"You have said {told.count('Hello')} times hello."}


async def fill(home: Path) -> None:
    """Make a home: conversations, turns that wait for leave, one that waits for an answer, one that is stopped."""
    done: list[str] = []
    gate = Gate()
    agent = await home_agent(home, done, gate).start()
    await agent.roles.put(Tier.WORKSPACE, HOUSE)
    for _ in range(2):
        await agent.thread("talk", account="ada").converse("Hello")
    assert (await agent.thread("approval").converse("Buy a hat")).status == "paused"
    assert (await agent.thread("question").task("paint", {"what": "door"})).status == "paused"
    buying = {"worker": "buyer", "request": "Buy a coat."}
    assert (await agent.thread("leave").task("subagent", buying)).status == "paused"
    assert (await agent.thread("told", account="ada").converse("Is it fine?", key="once")).status == "done"
    running = asyncio.create_task(agent.thread("stopped").task("stop", {"what": "more"}))
    await gate.reached.wait()
    draining = asyncio.create_task(agent.drain(30))
    await asyncio.sleep(0)  # it has begun before the effect ends
    gate.open.set()
    assert (await running).status == "stopped"
    await draining
    assert done == ["write door 0", "write door 1", "write door 2", "write stops"]


def dumped(home: Path) -> dict[str, str]:
    """The databases of a home as SQL, by name."""
    texts: dict[str, str] = {}
    for name in FILES:
        with closing(sqlite3.connect(home / f"{name}.db")) as connection:
            texts[name] = "\n".join(connection.iterdump()) + "\n"
    return texts


def restore(kept: Path, home: Path) -> None:
    """Make a home of what is kept of one."""
    home.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        with closing(sqlite3.connect(home / f"{name}.db")) as connection:
            connection.executescript((kept / f"{name}.sql").read_text(encoding="utf-8"))


def tables(home: Path) -> dict[str, set[tuple[Any, ...]]]:
    """Tables, columns and indexes of the databases of a home; not in which order or words they were declared."""
    found: dict[str, set[tuple[Any, ...]]] = {}
    for name in FILES:
        with closing(sqlite3.connect(home / f"{name}.db")) as connection:
            made = connection.execute("SELECT type, name, tbl_name FROM sqlite_master").fetchall()
            columns = [
                (table, *column[1:])
                for kind, table, _ in made
                if kind == "table"
                for column in connection.execute(f"PRAGMA table_info({table})").fetchall()
            ]
            found[name] = {*made, *columns}
    return found


def main() -> None:
    kept = HOMES / version("worldagent")
    if kept.exists():
        raise SystemExit(f"{kept} is kept already, and a released home is never made again: set the next version first")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(Path(folder)))
        texts = dumped(Path(folder))
    kept.mkdir(parents=True)
    for name, text in texts.items():
        (kept / f"{name}.sql").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
