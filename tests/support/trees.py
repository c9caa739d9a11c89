"""Random trees of calls: the bodies that make them, what must come of them, and a person who answers their pauses.

How a tree is played is `tree_plays`', what happens in other processes `tree_forks`'.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.databases import storage_of
from worldagent import Settings, WorldAgent
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Answer, Approve, Happened, NotHappened, Pause, Reject, RunAgain, call_id_of
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, Worker, flow, tool
from worldagent.testing import ScriptedCall, ScriptedLM

LEAVES = ("write", "write", "put", "pay", "fail", "question", "choice", "form", "worker", "loop")
WAYS = (
    "one by one", "gather", "gathered errors", "group", "in time", "stubborn", "at last", "strict", "strict group",
    "raises",
)  # fmt: skip
VIAS = ("flow", "flow", "task", "task", "allowed")
DEPTH = 5
TIMES = 3  # how often a loop calls the same

Node = Mapping[str, Any]


class Ground(BaseModel):
    node: dict[str, Any]


class Grown(BaseModel):
    value: Any
    mark: str = "GROWN"


class Place(BaseModel):
    place: str
    sure: bool


# --- trees ----------------------------------------------------------------------------------------------------------


def grown(tree: Node, path: str = "r", *, in_task: bool = True) -> dict[str, Any]:
    """Give every node its path; a flow can dispatch no task, so what stands below one is called instead."""
    kind, via = tree["kind"], tree.get("via", "")
    if not in_task:
        kind, via = ("write" if kind == "worker" else kind), ("flow" if via == "task" else via)
    below = [
        grown(child, f"{path}.{place}", in_task=via == "task") for place, child in enumerate(tree.get("below", ()))
    ]
    return {"kind": kind, "via": via, "path": path, "below": below}


def chance(path: str, of: int) -> int:
    """The same for a path each time, in every process."""
    return zlib.crc32(path.encode()) % of


@dataclass(frozen=True)
class Outcome:
    """What must come of a node.

    Attributes:
        value: What its caller gets; the code of an error where it fails.
        fails: Whether it fails.
        must: The effects that happen.
        may: Those that may happen beside them, since nothing waits for them any more.
    """

    value: Any
    fails: bool = False
    must: Counter[str] = field(default_factory=Counter)
    may: Counter[str] = field(default_factory=Counter)


def outcome(node: Node, looked: Mapping[str, str], depth: int = 0) -> Outcome:
    """What must come of a node.

    Args:
        node: The node.
        looked: What the person said of uncertain effects: `happened` or `lost`, by path.
        depth: How deep its caller stands.
    """
    if depth >= DEPTH and node["kind"] not in ("question", "choice", "form"):  # a question is no call
        return Outcome("depth_exceeded", fails=True)
    if node["below"]:
        return _inner(node, looked, depth)
    path = node["path"]
    values = {"question": f"at {path}", "form": f"at {path}", "choice": "here", "worker": f"judged {path}"}
    if node["kind"] in values:
        return Outcome(values[node["kind"]])
    return _effect(path, node["kind"], looked)


def _effect(path: str, kind: str, looked: Mapping[str, str]) -> Outcome:
    if kind == "loop":
        return Outcome([path] * TIMES, must=Counter({path: TIMES}))
    if kind == "pay" and refused(path):
        return Outcome("call_refused", fails=True)
    if looked.get(path) == "lost":
        return Outcome("effect_lost", fails=True)
    happened = Counter({path: 1})
    if kind == "fail" and looked.get(path) != "happened":
        return Outcome("task_failed", fails=True, must=happened)
    return Outcome(path, must=happened)


def _inner(node: Node, looked: Mapping[str, str], depth: int) -> Outcome:
    if node["via"] == "allowed" and refused(node["path"]):
        return Outcome("call_refused", fails=True)
    below = [outcome(child, looked, depth + (node["path"] != "r")) for child in node["below"]]
    must, may = sum((one.must for one in below), Counter[str]()), sum((one.may for one in below), Counter[str]())
    values = [one.value for one in below]
    match node["kind"]:
        case "strict" | "strict group":
            if any(one.fails for one in below):
                return Outcome("broken", may=must + may)
        case "raises":
            return Outcome("task_failed", fails=True, must=must, may=may)
        case _:
            pass
    return Outcome(values, must=must, may=may)


def refused(path: str) -> bool:
    """Whether the person does not allow it."""
    return chance(path, 4) == 0


# --- bodies ---------------------------------------------------------------------------------------------------------


Go = Callable[[Node], Awaitable[Any]]


async def body(node: Node, ctx: CallContext | TaskContext) -> Any:
    """Make the calls below a node in its way."""

    async def strict(child: Node) -> Any:
        await ticks(f"go {child['path']}")
        return await called(child, ctx)

    async def go(child: Node) -> Any:
        try:
            return await strict(child)
        except WorldAgentError as error:
            return error.code

    return await _in_its_way(node, go, strict)


async def _in_its_way(node: Node, go: Go, strict: Go) -> Any:
    below = node["below"]
    match node["kind"]:
        case "one by one":
            return [await go(child) for child in below]
        case "gather":
            return await asyncio.gather(*map(go, below))
        case "gathered errors":
            found = await asyncio.gather(*map(strict, below), return_exceptions=True)
            return [one.code if isinstance(one, WorldAgentError) else one for one in found]
        case "group":
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(_started(go(child))) for child in below]
            return [task.result() for task in running]
        case "in time":
            async with asyncio.timeout(3600):
                return await asyncio.gather(*map(go, below))
        case _:
            return await _in_a_bad_way(node, go, strict)


async def _in_a_bad_way(node: Node, go: Go, strict: Go) -> Any:
    below = node["below"]
    match node["kind"]:
        case "stubborn":
            for _ in range(3):
                try:
                    return await asyncio.gather(*map(go, below))
                except BaseException:  # that is its way
                    continue
            return "gave up"
        case "at last":
            found = []
            try:
                found = [await go(child) for child in below[:-1]]
            finally:
                last = await go(below[-1])
            return [*found, last]
        case "strict":
            try:
                return await asyncio.gather(*map(strict, below))
            except BaseException:  # that is its way
                return "broken"
        case "strict group":
            try:
                async with asyncio.TaskGroup() as group:
                    running = [group.create_task(_started(strict(child))) for child in below]
            except Exception:  # that is its way
                return "broken"
            return [task.result() for task in running]
        case "raises":
            await asyncio.gather(*map(go, below))
            raise RuntimeError("that is its way")
        case _:
            raise AssertionError(node["kind"])


async def _started(running: Awaitable[Any]) -> Any:
    return await running


async def called(node: Node, ctx: CallContext | TaskContext) -> Any:
    """Ask for what a node stands for."""
    calls = ctx.calls if isinstance(ctx, TaskContext) else ctx
    path, kind = node["path"], node["kind"]
    if node["below"]:
        if node["via"] == "task":
            assert isinstance(ctx, TaskContext)
            return (await ctx.task("job", {"node": node})).value
        return await ctx.call(node["via"], {"node": node})
    match kind:
        case "question":
            return await calls.ask_person(f"where is {path}?")
        case "choice":
            return await calls.ask_person(f"where is {path}?", ["here", "there"])
        case "form":
            return (await calls.ask_person(f"where is {path}?", form=Place)).place
        case "worker":
            assert isinstance(ctx, TaskContext)
            return (await ctx.task("subagent", {"worker": "critic", "request": path})).text
        case "loop":
            return [await ctx.call("repeat", {"path": path}) for _ in range(TIMES)]
        case _:
            return await ctx.call(kind, {"path": path})


async def ticks(path: str) -> None:
    """Let others run for a while that is the same for a path each time."""
    for _ in range(chance(path, 6)):
        await asyncio.sleep(0)


# --- the agent ------------------------------------------------------------------------------------------------------


class World:
    """Where the effects of a turn happen.

    Args:
        home: The agent's home, which keeps them.
        passed: Told before and after each.
    """

    def __init__(self, home: Path, passed: Callable[[], None] = lambda: None) -> None:
        self._home = home
        self._passed = passed

    @property
    def effects(self) -> Counter[str]:
        """What has happened, and how often."""
        log = self._home / "effects"
        found = Counter(log.read_text().split()) if log.exists() else Counter[str]()
        return found + Counter(file.name.removeprefix("put-") for file in self._home.glob("put-*"))

    def happen(self, path: str) -> None:
        self._passed()
        with (self._home / "effects").open("a") as log:
            log.write(f"{path}\n")
        self._passed()

    def happen_again(self, path: str) -> None:
        """An effect that happens once, however often it is asked for."""
        self._passed()
        (self._home / f"put-{path}").touch()
        self._passed()

    def functions(self) -> list[Function]:
        async def write(path: str) -> str:
            await ticks(path)
            self.happen(path)
            await ticks(path[::-1])
            return path

        async def put(path: str) -> str:
            await ticks(path)
            self.happen_again(path)
            await ticks(path[::-1])
            return path

        async def fail(path: str) -> str:
            await write(path)
            raise RuntimeError("it fails")

        async def node(ctx: CallContext, node: dict[str, Any]) -> Any:
            return await body(node, ctx)

        return [
            tool(name="write", risk="read_only")(write),
            tool(name="repeat", risk="read_only")(write),
            tool(name="put", idempotent=True, risk="read_only")(put),
            tool(name="pay", approval=True)(write),
            tool(name="fail", risk="read_only")(fail),
            flow(name="flow")(node),
            flow(name="allowed", approval=True)(node),
        ]


def agent_of(home: Path, tree: Node, passed: Callable[[], None] = lambda: None, **more: Any) -> WorldAgent:
    """An agent whose planner dispatches the tree, and whose functions and shape are what it is made of."""

    async def job(params: Ground, ctx: TaskContext) -> Grown:
        return Grown(value=await body(params.node, ctx))

    def reply(call: ScriptedCall) -> dict[str, Any]:
        if "request" in call.fields:
            return {"result": f"judged {call.fields['request']}"}
        if any("GROWN" in str(message) for message in call.messages) or call.fields.get("message") == "Still there?":
            return {"reply": "All done."}
        return {"reply": "", "calls": [{"tool": "job", "arguments": {"node": tree}}]}

    settings = {"model_attempts": 1, "model_backoff": 0} | more.pop("settings", {})
    return WorldAgent(
        "novel",
        lm=ScriptedLM(reply),
        tools=World(home, passed).functions(),
        workers=[Worker("critic", "You judge.", "judges")],
        shapes=[Shape("job", Ground, Grown, job, description="grows a tree")],
        storage=storage_of(home),
        settings=Settings(**settings),
        **more,
    )


async def begun(agent: WorldAgent, tree: Node, *, planned: bool) -> Any:
    """Begin a turn with the tree: as a task, or by what the planner dispatches."""
    thread = agent.thread("t")
    return await (thread.converse("Grow it.") if planned else thread.task("job", {"node": tree}))


# --- a person -------------------------------------------------------------------------------------------------------


Said = tuple[str, Any]
"""An answer as JSON: what it is, and of what."""


def path_of(pause: Pause) -> str:
    """Which node asks."""
    if pause.question is not None:
        return pause.question.removeprefix("where is ").removesuffix("?")
    found: Any = pause.arguments.get("path") or pause.arguments["node"]["path"]
    return str(found)


def said(pause: Pause, effects: Counter[str], looked: dict[str, str]) -> Said:
    """What the person says, who looks at the effects where one is uncertain, and means the same each time."""
    path = path_of(pause)
    match pause.kind:
        case "approval":
            return ("reject", path) if refused(path) else ("approve", path)
        case "question" if pause.options:
            return "answer", "here"
        case "question":
            properties = (pause.schema or {}).get("properties")
            return "answer", ({"place": f"at {path}", "sure": True} if properties else f"at {path}")
        case _:
            pass
    earlier = int(call_id_of(pause.id).rpartition(":")[2].partition(".")[2] or 0)  # calls of the same that came before
    if effects[path] > earlier:
        looked[path] = "happened"
        return "happened", path
    if pause.function != "repeat" and chance(f"lost {path}", 3) == 0:
        looked[path] = "lost"
        return "lost", path
    return "again", path


def answered(one: Said) -> Any:
    """An answer as `resume()` takes it."""
    kind, value = one
    return {
        "approve": Approve(),
        "reject": Reject("no"),
        "answer": Answer(value),
        "happened": Happened(value),
        "lost": NotHappened(),
        "again": RunAgain(),
    }[kind]
