"""The turn as one compiled graph: plan, act, plan again until there is an answer (design 3, T1).

Conversation, schedule, task and skill run through the same two nodes; a task begins at `act` and ends there. State
holds the head of the log, open work and counters, never the text of a message or a role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from ..core.errors import ContextExceeded, ModelRefused, OutputInvalid, WorldAgentError
from ..core.events import PlanRejected, TextReplaced, TurnKind
from ..harness.journal import ABOUT_THE_TURN, SUSPENDED, Frame
from ..memory import Draft
from ..role_resolution import NO_ROLE, ResolvedRole
from ..signatures import Planner
from ._attached import Shown
from ._context import AGENT, STOPPED, WAITING, TurnContext
from ._plan import PlanFault, Work, read_plan
from ._task import Dispatched, calls_of, dispatched, side_by_side
from ._verifying import Checks
from ._window import Window

_END: Literal["__end__"] = "__end__"  # langgraph declares its END as any text
_MEND = "Your last plan could not be carried out: {}. Mend it, or answer now."
_TOLD = 1  # how often a plan that cannot be carried out is told so before the planner must answer


class TurnState(TypedDict):
    """Where a turn stands."""

    turn: str
    kind: TurnKind
    asked: str
    head: str
    round: int
    work: list[Work]
    rejections: int
    fault: str | None
    status: Literal["open", "done"]
    role: str | None


Goto = Command[Literal["plan", "act", "__end__"]]
"""What a node gives: the channels it sets, and where to go."""

TurnGraph = CompiledStateGraph[TurnState, TurnContext, TurnState, TurnState]


def build_turn_graph(saver: Any) -> TurnGraph:
    """Compile the turn graph over a checkpointer, or over none."""
    graph = StateGraph(TurnState, context_schema=TurnContext)
    # Nodes say where to go; a router of its own would be one more runnable a step.
    graph.add_node("plan", plan, destinations=("plan", "act", _END))
    graph.add_node("act", act, destinations=("plan", _END))
    graph.add_conditional_edges(START, _first, ["plan", "act"])
    return graph.compile(checkpointer=saver)


def first_state(turn: TurnContext, kind: TurnKind, head: str, work: Work | None) -> TurnState:
    """The input of a new turn; it resets every channel that a turn uses."""
    return {
        "turn": turn.turn_id,
        "kind": kind,
        "asked": head,
        "role": turn.noted,
        "head": head,
        "round": 0,
        "work": [] if work is None else [work],
        "rejections": 0,
        "fault": None,
        "status": "open",
    }


async def plan(state: TurnState, runtime: Runtime[TurnContext]) -> Goto:
    """Let the planner answer or dispatch. A plan that cannot be carried out is told so once."""
    turn = runtime.context
    turn.check_role(state["role"])
    if turn.drive.stopping:
        interrupt(STOPPED)
    checks = Checks(turn)
    if checks.accepted is not None:  # the turn was cut off between the verdict and its end
        turn.emit(TextReplaced, text=checks.accepted)
        return await _answered(turn, state["head"], checks.accepted)
    options = turn.services.options
    direct = state["rejections"] > _TOLD or state["round"] >= options.max_rounds
    if turn.emit.standing:
        turn.emit(TextReplaced, text="")
    first = not (state["round"] or state["rejections"] or checks.told)
    told = [*filter(None, (checks.told, state["fault"] and _MEND.format(state["fault"])))]
    window = await Window.open(turn, state["head"], state["asked"], "\n\n".join(told) or None, first=first)
    fault: str | None = None
    reply, work = "", list[Work]()
    try:
        reply, dispatches = await _planned(turn, window, direct=direct, first=first)
        work = read_plan(dispatches, turn.services.registry, turn.services.shapes)
    except OutputInvalid as error:
        if direct:
            raise
        fault = error.problem
    except PlanFault as error:
        fault = str(error)
    if fault is not None:
        rejections = state["rejections"] + 1
        turn.emit(PlanRejected, reason=fault, final=rejections > _TOLD)
        fault = fault if rejections <= _TOLD else None
        return Command(update={"rejections": rejections, "fault": fault, "head": window.head}, goto="plan")
    if work:
        body = {"text": reply, "dispatches": work}
        head = await _append(turn, window.head, [Draft(AGENT, "plan", body)])
        return Command(update={"head": head, "work": work, "fault": None}, goto="act")
    if not await checks.passes(window.message, window.found, reply):
        return Command(update={"head": window.head, "fault": None}, goto="plan")
    return await _answered(turn, window.head, reply)


async def _answered(turn: TurnContext, head: str, reply: str) -> Goto:
    head = await _append(turn, head, [Draft(AGENT, "answer", {"text": reply})])
    return Command(update={"head": head, "status": "done", "fault": None}, goto=_END)


async def act(state: TurnState, runtime: Runtime[TurnContext]) -> Goto:
    """Run the open work, several tasks side by side, and put the results into the log in the plan's order."""
    turn = runtime.context
    turn.check_role(state["role"])
    status: Literal["open", "done"] = "open"
    if state["kind"] in ("task", "skill"):
        [item] = state["work"]
        done = [await _surface_task(turn, item)]
        status = "done"
    else:
        done = await side_by_side(
            _dispatched(turn, item, f"{turn.turn_id}/step.{state['round']}.{place}:{item['to']}")
            for place, item in enumerate(state["work"])
        )
    drafts = [draft for draft in done if draft is not None]
    if len(drafts) < len(done):
        interrupt(WAITING)  # the last thing that can stop here; answers are in the journal, never in this value
    head = await _append(turn, state["head"], drafts)
    update = {"head": head, "work": [], "round": state["round"] + 1, "status": status}
    return Command(update=update, goto=_END if status == "done" else "plan")


async def _planned(
    turn: TurnContext, window: Window, *, direct: bool, first: bool
) -> tuple[str, Sequence[dict[str, Any]]]:
    """Call the planner; where the context is too short, with less of what stands before, and so on."""
    listener = turn.listener(Planner.NAME, "reply")
    light, tell = False, first
    while True:
        shown = await Shown.of(turn, window.message, window.past, light=light, tell=tell)
        tell = False
        try:
            plan = await turn.ask(
                partial(
                    turn.services.planner,
                    shown.message,
                    role=turn.role,
                    past=shown.past,
                    listener=listener,
                    direct=direct,
                )
            )
            return plan.reply, plan.dispatches
        except (ContextExceeded, ModelRefused) as error:
            failure = error
        if shown.heavy:  # what was attached once must not keep a thread from going on
            light = True
        elif isinstance(failure, ModelRefused) or not await window.narrow():
            raise failure


# A plain function would cost two thread hops.
async def _first(state: TurnState) -> str:
    return "act" if state["work"] else "plan"


async def _surface_task(turn: TurnContext, item: Work) -> Draft | None:
    """A task that the host dispatched: the turn's own role applies, and its failure is the turn's."""
    return await _done(turn, item, f"{turn.turn_id}/task:{item['shape']}", turn.role)


async def _dispatched(turn: TurnContext, item: Work, path: str) -> Draft | None:
    """A task that the planner dispatched: it has no role (T8), and a failure is told to the planner."""
    try:
        return await _done(turn, item, path, NO_ROLE)
    except ABOUT_THE_TURN:
        raise
    except WorldAgentError as error:
        return _result_draft(item, {"status": "failed", "error": {"code": error.code, "message": error.problem}})


async def _done(turn: TurnContext, item: Work, path: str, role: ResolvedRole) -> Draft | None:
    """Do a task; None where it waits or was told to stop."""
    shape = turn.services.shapes.get(item["shape"])
    params = shape.read_params(item["params"])
    ctx = calls_of(turn, Frame(turn.drive, turn.turn_id, turn.depth), turn.caller)
    how = Dispatched(shape=shape, role=role, prompted=True, raw=True)
    result = await dispatched(how, params, ctx, path=path, waits=False)
    return None if result is SUSPENDED else _result_draft(item, {"status": "done", "result": result})


def _result_draft(item: Work, outcome: dict[str, Any]) -> Draft:
    return Draft(item["to"], "result", {"to": item["to"], "shape": item["shape"], **outcome})


async def _append(turn: TurnContext, head: str, drafts: Sequence[Draft]) -> str:
    if turn.gate.marks:  # what is said after something untrusted was read may come from there
        untrusted = {"untrusted": sorted(turn.gate.marks)}
        drafts = [replace(draft, body={**draft.body, **untrusted}) for draft in drafts]
    return await turn.services.log.append(head, drafts, thread=turn.thread_key, turn_id=turn.turn_id, lease=turn.lease)
