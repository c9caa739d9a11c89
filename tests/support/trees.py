"""Random trees of calls: the bodies that make them, what must come of them, and a person who answers their pauses.

A tree is played to its end: with wrong answers, cancels, drains and kills on the way. As a program it runs a turn in a
process that is killed.
"""

import asyncio
import os
import signal
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from pydantic import BaseModel

from support.agents import approving, open_pauses
from support.databases import Engine, made, removed, storage_of
from support.processes import be_program, eventually, lines, others, run_child
from support.steps import Steps
from worldagent import Settings, WorldAgent
from worldagent.core import errors
from worldagent.core.errors import WorldAgentError
from worldagent.core.pauses import Answer, Approve, Happened, NotHappened, Pause, Reject, RunAgain, call_id_of
from worldagent.graphs import Shape, TaskContext
from worldagent.harness import CallContext, Function, Policy, Worker, flow, tool
from worldagent.testing import ScriptedCall, ScriptedLM, VirtualClock

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
    if depth >= DEPTH and node["kind"] not in ("question", "choice", "form"):  # a question is not a call
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


Go = Callable[[Node], Coroutine[Any, Any, Any]]


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
                running = [group.create_task(go(child)) for child in below]
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
                    running = [group.create_task(strict(child)) for child in below]
            except Exception:  # that is its way
                return "broken"
            return [task.result() for task in running]
        case "raises":
            await asyncio.gather(*map(go, below))
            raise RuntimeError("that is its way")
        case _:
            raise AssertionError(node["kind"])


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
        return Counter(lines(self._home / "effects")) + Counter(
            file.name.removeprefix("put-") for file in self._home.glob("put-*")
        )

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
            tool(name="write", risk="write")(write),
            tool(name="repeat", risk="write")(write),
            tool(name="put", idempotent=True, risk="write")(put),
            tool(name="pay", approval=True)(write),
            tool(name="fail", risk="write")(fail),
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
        policy=Policy(rules=(approving("write", "repeat", "put", "fail"),)),
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


async def run_and_die(**order: Any) -> str:
    """Begin or resume the turn, in a process; killed at the point that is ordered, if it comes that far."""
    steps = Steps(order["at"], order["unit"], lambda: os.kill(os.getpid(), signal.SIGKILL))
    async with agent_of(Path(order["home"]), order["tree"], steps.passed) as agent:
        steps.watch()
        if order["begin"]:
            turn = await begun(agent, order["tree"], planned=order["planned"])
        else:
            answers = {pause_id: answered((kind, value)) for pause_id, (kind, value) in order["answers"].items()}
            try:
                turn = await agent.thread("t").resume(answers)
            except errors.NothingToResume:
                return "nothing"
        return str(turn.status)


LIMIT = 60.0  # seconds that one run at a turn may take before it counts as one that waits for ever
RUNS = 60  # how often a turn may be gone on with before it counts as one that never ends
TURN_TIMEOUT = 1000.0

How = Literal["run", "drain", "cut", "late", "kill", "meanwhile", "twice"]
End = Literal["cancelled", "closed", "left"]


@dataclass(frozen=True)
class Move:
    """What one run at the turn goes through.

    Attributes:
        how: `drain` and `cut` close the agent so that the turn can go on; `late` lets its time pass, `kill` kills the
            process, `meanwhile` answers from another agent while it runs, `twice` gives an answer twice at once.
        at: After how many steps or effects.
        unit: Which of the two.
        seed: Chooses the pauses that are answered.
        fresh: Whether a new agent resumes it.
    """

    how: How
    at: int
    unit: Literal["steps", "effects"]
    seed: int
    fresh: bool


@dataclass
class Play:
    """One tree, and what is done to its turn until that ends.

    Attributes:
        seen: What happened on the way, counted.
    """

    tree: Node
    moves: Sequence[Move]
    planned: bool
    end: tuple[End, int] | None
    home: Path
    seen: Counter[str] = field(default_factory=Counter)
    looked: dict[str, str] = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)

    async def run(self) -> None:
        """Play it, and check what came of it."""
        moves = [*self.moves]
        self.clock = VirtualClock()
        self.agent = await self._opened()
        self.tasks = others()
        self.seed = 0
        status = "nothing"
        try:
            for _ in range(RUNS):
                move = moves.pop(0) if moves else None
                if move is None and self.end is not None:
                    return await self._ended(*self.end, begin=status == "nothing")
                status = await self._moved(move, begin=status == "nothing")
                self.seen[status] += 1
                if status == "done":
                    return await self._over()
            raise AssertionError(f"it does not end; the last run was {status}")
        finally:
            await self.agent.aclose()

    # --- one run ----------------------------------------------------------------------------------------------------

    async def _moved(self, move: Move | None, *, begin: bool) -> str:
        if move is not None and move.fresh:
            await self._reopened()
        pauses = () if begin else await open_pauses(self.agent.thread("t"))
        for pause in pauses:
            assert (
                self.ids.setdefault((pause.kind + pause.function, path_of(pause) + _number(pause)), pause.id)
                == pause.id
            )
        answers = self._answers(pauses, move)
        if move is None:
            return await self._to_its_end(self._run(answers, begin=begin))
        self.seen[move.how] += 1
        match move.how:
            case "kill":
                return await self._killed(move, answers, begin=begin)
            case "twice":
                return await self._twice(answers, begin=begin)
            case "run":
                await self._wrong(pauses)
                return await self._to_its_end(self._run(answers, begin=begin))
            case _:
                return await self._cut(move, answers, begin=begin)

    def _answers(self, pauses: Sequence[Pause], move: Move | None) -> dict[str, Said]:
        chosen = list(pauses)
        if move is not None and chosen:
            order = Random(move.seed)
            chosen = order.sample(chosen, order.randint(0, len(chosen)))
        effects = World(self.home).effects
        self.seen["answers"] += len(chosen)
        for pause in chosen:
            self.seen[pause.kind] += 1
        return {pause.id: said(pause, effects, self.looked) for pause in chosen}

    async def _run(self, answers: dict[str, Said], *, begin: bool, agent: WorldAgent | None = None) -> str:
        agent = agent or self.agent
        if begin:
            return str((await begun(agent, self.tree, planned=self.planned)).status)
        try:
            return str((await agent.thread("t").resume({one: answered(what) for one, what in answers.items()})).status)
        except errors.NothingToResume as error:
            return "done" if "is done" in error.problem else "nothing"
        except errors.TurnTimeout:
            return "late"

    async def _to_its_end(self, run: Coroutine[Any, Any, str]) -> str:
        async with asyncio.timeout(LIMIT):
            status = await run
        await self._nothing_left()
        return status

    async def _cut(self, move: Move, answers: dict[str, Said], *, begin: bool) -> str:
        """Do something to the turn in the middle of its run."""
        running = await self._reached(move.at, move.unit, answers, begin=begin)
        if not running.done():
            self.seen[f"{move.how} in the middle"] += 1
        async with asyncio.timeout(LIMIT):
            match move.how:
                case "late":
                    await self.clock.advance(TURN_TIMEOUT + 1)
                case "meanwhile":
                    await self._meanwhile(move, answers)
                case _:
                    await self.agent.drain(LIMIT if move.how == "drain" else 0)
            try:
                status = await running
            except errors.AgentClosed:  # it had not begun
                status = "nothing" if begin else "refused"
            except errors.TurnTimeout:
                status = "late"
        if move.how in ("drain", "cut"):
            await self._reopened()
        await self._nothing_left()
        return status

    async def _reached(self, at: int, unit: str, answers: dict[str, Said], *, begin: bool) -> asyncio.Task[str]:
        """A run of a new agent, once it has come so far, or has ended."""
        reached = asyncio.Event()
        steps = Steps(at, unit, reached.set)
        await self._reopened(steps.passed)
        running = asyncio.create_task(self._run(answers, begin=begin))
        end, reaching = steps.watch(), asyncio.create_task(reached.wait())
        await asyncio.wait({running, reaching}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
        end()
        reaching.cancel()
        return running

    async def _meanwhile(self, move: Move, given: dict[str, Said]) -> None:
        """Answer from another agent what is asked while the turn runs, but for what its run was given answers to."""
        async with agent_of(self.home, self.tree) as other:
            asked = await open_pauses(other.thread("t"))
            answers = self._answers([pause for pause in asked if pause.id not in given], move)
            if answers:
                self.seen["answered while it runs"] += 1
                await self._run(answers, begin=False, agent=other)

    async def _twice(self, answers: dict[str, Said], *, begin: bool) -> str:
        """Two agents give the same answers at once; one of them is told that it came second."""
        if begin or not answers:
            return await self._to_its_end(self._run(answers, begin=begin))
        async with agent_of(self.home, self.tree) as other, asyncio.timeout(LIMIT):
            both = await asyncio.gather(
                *(self._run(answers, begin=False, agent=agent) for agent in (self.agent, other)), return_exceptions=True
            )
        statuses = [one for one in both if isinstance(one, str)]
        told = [one for one in both if not isinstance(one, str)]
        assert all(isinstance(one, errors.AlreadyAnswered) for one in told), both
        # Who came when the turn was over is told that, by `resume()` or here.
        assert len(told) == 1 or statuses.count("done") == 2, both
        await self._nothing_left()
        return statuses[0]

    async def _killed(self, move: Move, answers: dict[str, Said], *, begin: bool) -> str:
        order = {"begin": begin, "planned": self.planned, "tree": self.tree, "answers": answers}
        at = move.at * (1 if move.unit == "effects" else 4)
        code, _, told = await run_child("trees", home=str(self.home), at=at, unit=move.unit, **order)
        assert code in (0, -9), f"the other process ended with {code}: {told}"
        self.seen["killed" if code else "not killed"] += 1
        return "unknown"

    async def _wrong(self, pauses: Sequence[Pause]) -> None:
        """Answers that do not fit are refused, and leave every pause open."""
        thread = self.agent.thread("t")
        for pause in pauses:
            wrong: object = "elsewhere" if pause.options else Answer(7)
            try:
                await thread.resume({pause.id: wrong})
            except errors.AnswerInvalid:
                continue
            raise AssertionError(f"{wrong!r} was taken for {pause}")
        if pauses:
            fitting = answered(said(pauses[0], World(self.home).effects, {}))
            try:
                await thread.resume({"call": "x", pauses[0].id: fitting})
            except errors.UnknownPause:
                assert await open_pauses(thread) == list(pauses)
                return
            raise AssertionError("an answer to a pause that there is not was taken")

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _ended(self, end: End, at: int, *, begin: bool) -> None:
        """End the turn in the middle of a run: nothing continues, nothing happens twice, the thread is free."""
        answers = self._answers(() if begin else await open_pauses(self.agent.thread("t")), None)
        running = await self._reached(at, "effects", answers, begin=begin)
        async with asyncio.timeout(LIMIT):
            match end:
                case "cancelled":
                    async with agent_of(self.home, self.tree) as other:
                        await other.thread("t").cancel()
                        await asyncio.wait({running})
                case "left":
                    running.cancel()
                    await asyncio.wait({running})
                case "closed":
                    await self.agent.aclose()
                    await asyncio.wait({running})
                    self.agent = await self._opened()
            self.seen[end] += 1
            await self._nothing_left()
            thread = self.agent.thread("t")
            await thread.cancel()
            assert await thread.pauses() == ()
            assert (await thread.converse("Still there?")).text == "All done."
        found = outcome(self.tree, self.looked)
        assert World(self.home).effects <= found.must + found.may

    async def _over(self) -> None:
        """The turn is done: everything has happened once, and its result is the right one."""
        found = outcome(self.tree, self.looked)
        effects = World(self.home).effects
        assert found.must <= effects <= found.must + found.may, (effects, found)
        results = [one for one in await self.agent.thread("t").history() if one.kind == "result"]
        assert [one.body["result"]["value"] for one in results] == [found.value]
        assert await self.agent.thread("t").pauses() == ()

    # --- agents -----------------------------------------------------------------------------------------------------

    async def _opened(self, passed: Callable[[], None] = lambda: None) -> WorldAgent:
        more = {"settings": {"turn_timeout": TURN_TIMEOUT}, "clock": self.clock}
        return await agent_of(self.home, self.tree, passed, **more).start()

    async def _reopened(self, passed: Callable[[], None] = lambda: None) -> None:
        await self.agent.aclose()
        self.agent = await self._opened(passed)

    async def _nothing_left(self) -> None:
        assert await eventually(lambda: others() <= self.tasks), asyncio.all_tasks()


def _number(pause: Pause) -> str:
    return pause.id.rpartition(":")[2].partition(".")[2]


def play(
    tree: Node, moves: Sequence[Move], *, planned: bool, end: tuple[End, int] | None, engine: Engine
) -> Counter[str]:
    """Play a tree in a home of its own; gives what happened on the way."""
    with tempfile.TemporaryDirectory() as folder:
        home = made(engine, Path(folder) / "home")
        played = Play(tree, moves, planned, end, home)
        try:
            asyncio.run(played.run())
        finally:
            removed(home)
    return played.seen


if __name__ == "__main__":
    be_program(lambda **order: [asyncio.run(run_and_die(**order))])
