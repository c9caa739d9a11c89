"""An agent whose conversation makes one call of each kind at once, and a record of how LangChain's callbacks nest."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel
from typing_extensions import TypedDict

from support.agents import calls
from support.databases import storage_of
from support.processes import add, lines, wait_for_kill
from support.skill_turns import package
from worldagent import Policy, Role, Rule, Settings, Shape, Worker, WorldAgent
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import graph_shape
from worldagent.harness import CallContext, Function, tool
from worldagent.testing import ScriptedCall, ScriptedLM

ROLE = Role("hawk", "QUARTZ-CANARY: judge as a hawk would that has not eaten since the ninth of May.")

STEP = {
    "tool": ("work_tool", {}),
    "worker": ("helper", {"request": "Work."}),
    "shape": ("order", {"what": "hat"}),
    "graph": ("offer", {"what": "hat"}),
    "skill": ("skill", {"name": "tea", "request": "Work."}),
}
"""The calls that one step makes at once, by kind. Each runs the tool `work_KIND`."""

Work = Callable[[str], Awaitable[None]]
"""What the tool of a kind does."""


class Order(BaseModel):
    what: str


class Receipt(BaseModel):
    text: str


class _State(TypedDict, total=False):
    what: str
    text: str


def offer_graph(quote: Any, context: Any = None) -> Any:
    """A graph of an embedder with one node."""
    graph = StateGraph(_State, context_schema=context)
    graph.add_node("quote", quote)
    graph.add_edge(START, "quote")
    graph.add_edge("quote", END)
    return graph.compile(name="offer")


async def _quote(state: _State, runtime: Runtime[CallContext]) -> _State:
    return {"text": str(await runtime.context.call("work_graph", {}))}


def step_agent(home: Path, work: Work, *, asks: Collection[str] = (), **more: Any) -> WorldAgent:
    """The agent.

    Args:
        home: Its home; its skill is written beside it.
        work: What the tool of a kind does.
        asks: The kinds whose tool needs an approval.
        more: Further arguments of the agent.
    """

    def worker_of(kind: str) -> Function:
        async def run() -> str:
            await work(kind)
            return f"worked for the {kind}"

        return tool(name=f"work_{kind}", risk="write", approval=kind in asks, description="Works.")(run)

    async def order(given: Order, ctx: TaskContext) -> Receipt:
        return Receipt(text=await ctx.call("work_shape", {}))

    given: dict[str, Any] = {
        "lm": ScriptedLM(reply),
        "tools": [worker_of(kind) for kind in STEP],
        "workers": [Worker("helper", "You help.", "helps", tools=("work_worker",))],
        "shapes": [
            Shape("order", Order, Receipt, order, description="orders a thing"),
            graph_shape("offer", offer_graph(_quote, CallContext), params=Order, result=Receipt, description="offers"),
        ],
        "skills": [package(home.parent, text="Work, then answer.").parent],
        "policy": Policy(rules=(Rule(decision="approve", function="work_*"),)),
        "storage": storage_of(home),
        "settings": Settings(model_attempts=1, model_backoff=0),
        **more,
    }
    return WorldAgent("novel", **given)


def reply(call: ScriptedCall) -> dict[str, Any]:
    """Make the calls of `STEP`, and then answer."""
    if '<skill name="tea">' in call.system:
        return {"reply": "Brewed."} if call.steps else {"reply": "", **calls(("work_skill", {}))}
    if "You help." in call.system:
        return {"result": "Helped."} if call.steps else {"result": "", **calls(("work_worker", {}))}
    return {"reply": "All is done."} if call.steps else {"reply": "", **calls(*STEP.values())}


class Counted:
    """The work of each kind, counted; that of one kind can fail."""

    def __init__(self, fails: str = "") -> None:
        self.done = Counter[str]()
        self._fails = fails

    async def __call__(self, kind: str) -> None:
        self.done[kind] += 1
        if kind == self._fails:
            raise ValueError("it is broken")


def noted(home: Path) -> Counter[str]:
    """How often each kind has worked, over all processes of a home."""
    return Counter(lines(home.parent / "worked"))


async def die(home: Path, waits: str, fails: str, hangs: str, after: int) -> None:
    """Make the step in this process, in which one kind waits, one fails, and one is killed in its effect.

    Args:
        home: The home.
        waits: The kind that needs an approval.
        fails: The kind that fails.
        hangs: The kind whose effect never ends.
        after: Whether that effect is noted before the process is killed.
    """

    left, alone = set(STEP) - {waits, hangs}, asyncio.Event()

    async def work(kind: str) -> None:
        if kind != hangs or after:
            add(home.parent / "worked", kind)
        if kind == hangs:
            await alone.wait()
            await wait_for_kill()
        left.discard(kind)
        if not left:
            alone.set()
        if kind == fails:
            raise ValueError("it is broken")

    async with step_agent(home, work, asks=[waits]) as agent:
        await agent.thread("t").converse("Go.")


class Tree(BaseCallbackHandler):
    """The runs that LangChain's callbacks are told of, as lines such as `turn > think`, and all that they are told."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self._lines: dict[Any, str] = {}
        self._begun: dict[Any, dict[str, Any]] = {}

    def metadata(self, line: str) -> list[dict[str, Any]]:
        """What the callbacks are told when the runs of a line begin."""
        return [more for run_id, more in self._begun.items() if self._lines[run_id] == line]

    @property
    def lines(self) -> Counter[str]:
        return Counter(self._lines.values())

    def on_chain_start(self, serialized: Any, inputs: Any, **more: Any) -> None:
        run_id, above = more["run_id"], self._lines.get(more["parent_run_id"])
        self._lines[run_id] = f"{above} > {more['name']}" if above else more["name"]
        self._begun[run_id] = more
        self.seen += [serialized, inputs, more]

    def on_chain_end(self, outputs: Any, **more: Any) -> None:
        self.seen += [outputs, more]

    def on_chain_error(self, error: BaseException, **more: Any) -> None:
        self.seen += [error, more]
