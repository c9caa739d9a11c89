"""The tools of the contract, their published JSON Schemas, and how a call of one is answered.

The functions in `service` do the work, except for calls that follow a turn over MCP (`turns`, `following`). An error
about invalid arguments names fields and rules, and has no value that the caller sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Final

from mcp.types import CallToolRequestParams, CallToolResult, InputRequiredResult

from ...agent import WorldAgent
from ...core.errors import AgentClosed, InvalidArgument, WorldAgentError
from ...scheduling import Schedules
from ..service.arguments import RoleSetArguments
from ..service.call import CallFacts, Grant, Refused, with_own_thread
from ..service.inbox import PendingAnswer, QueueArguments, ReleaseArguments, thread_queue, thread_release
from ..service.next_steps import advised, name_turn
from ..service.operation import Operation, Run
from ..service.operations import OPERATIONS, Operations
from ..service.records import Answer, ErrorAnswer, RoleSetAnswer
from ..service.schedules import ScheduleArguments, ScheduleRunAnswer, fire
from ..service.threads import thread_role_set
from ..service.validation import validated
from ..serving import tool_schemas
from .following import Context, SidecarParts, ToolCall, events
from .results import answered, failed
from .tasks import TaskJson
from .turns import resume, surface

_LOG = logging.getLogger("worldagent.sidecar")


async def _thread_role_set(call: ToolCall[RoleSetArguments], agent: WorldAgent) -> RoleSetAnswer:
    """Run `thread_role_set`. The pool keeps the agent open as long as it holds the role."""
    answer: RoleSetAnswer = await thread_role_set(call, agent)
    seconds = agent.settings.thread_role_ttl if call.given.ttl is None else call.given.ttl
    call.parts.agents.hold_role(call.caller.workspace, seconds)
    return answer


async def _with_role(
    run: Run, call: ToolCall[QueueArguments] | ToolCall[ReleaseArguments], agent: WorldAgent
) -> PendingAnswer:
    """Run `thread_queue` or `thread_release`, as `_thread_role_set`."""
    answer: PendingAnswer = await run(call, agent)
    if call.given.role is not None:
        call.parts.agents.hold_role(call.caller.workspace, agent.settings.thread_role_ttl)
    return answer


async def _schedule_run(call: ToolCall[ScheduleArguments], agent: WorldAgent) -> ScheduleRunAnswer:
    """Run `schedule_run`. The agent stays open and the turn is counted until the run ends or waits for a person."""
    agents, workspace, fired = call.parts.agents, call.caller.workspace, Schedules(agent)
    answer: asyncio.Future[ScheduleRunAnswer] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with agents.use(workspace):
            with agents.turn(workspace, (call.caller.account, object())):
                answer.set_result(await fire(call, agent, fired))
                await fired.settled()

    running = agents.spawn(run())
    waited: set[asyncio.Future[Any]] = {running, answer}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        running.result()  # raises why there is none
    return answer.result()


_RUNS: Final[Mapping[str, Run]] = {
    "resume": resume,
    "events": events,
    "thread_role_set": _thread_role_set,
    "thread_queue": partial(_with_role, thread_queue),
    "thread_release": partial(_with_role, thread_release),
    "schedule_run": _schedule_run,
}
"""Operations that need what a server has."""


def tools_of(operations: Operations) -> Operations:
    """Return the operations that are tools."""
    return {name: each for name, each in operations.items() if "sidecar" not in each.absent}


TOOLS: Final = tools_of(OPERATIONS)


def run_of(operation: Operation) -> Run:
    """Return what runs an operation in a server."""
    return _RUNS.get(operation.name) or (surface if operation.kind == "turn" else operation)


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of the contract by name: `converse.input`, `converse.output` and so on, and `error`.

    An `output` accepts the tool's answer and every error; `error` accepts errors only.
    """
    return tool_schemas(TOOLS, ErrorAnswer)


async def call_tool(
    parts: SidecarParts, ctx: Context, params: CallToolRequestParams, *, grant: Grant, facts: CallFacts
) -> CallToolResult | InputRequiredResult | TaskJson:
    """Run one of the contract's tools. Except for cancellation, it raises nothing.

    Args:
        parts: The parts that all calls share.
        ctx: The request.
        params: Its params.
        grant: The grant of the caller's token.
        facts: Collects facts about the call, for the request log among others.
    """
    advice: Mapping[str, Any] = {}
    failure: WorldAgentError | Refused
    spec = TOOLS[params.name]
    try:
        if parts.client_roles is not None:
            parts.client_roles.serve(ctx.session)
        try:
            given = validated(spec.arguments, params.arguments or {})
        except InvalidArgument:
            parts.agents.refusals.note(grant)
            raise
        caller = grant.caller(given.workspace, given.account)
        facts.workspace = caller.workspace
        given = with_own_thread(grant, given, facts)
        call = ToolCall(given=given, caller=caller, facts=facts, parts=parts, ctx=ctx, params=params)
        async with parts.agents.use(caller.workspace) as agent:
            try:
                answer: Answer | InputRequiredResult | TaskJson = await run_of(spec)(call, agent)
            except WorldAgentError as error:
                await name_turn(call, agent, error)
                advice = await advised(call, agent, error)
                raise
        if isinstance(answer, Answer):
            return answered(answer)
        if isinstance(answer, InputRequiredResult):
            facts.code = "input_required"
        return answer
    except AgentClosed as error:
        failure = parts.agents.refusal() if parts.agents.draining else error
    except (WorldAgentError, Refused) as error:
        failure = error
    except Exception as error:  # of any type: custom code runs below; the text can hold what the caller sent
        _LOG.error("%s failed: %s", params.name, type(error).__name__)
        failure = Refused(
            "internal",
            "the sidecar failed with an internal error",
            remedy="look at its log, or ask its operator",
            turn_id=facts.turn,
        )
    facts.code, facts.turn = failure.code, advice.get("turn_id") or failure.turn_id or facts.turn
    return failed(failure, advice)
