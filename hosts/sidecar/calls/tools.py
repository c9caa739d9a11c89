"""Runs a call of a tool: checks its arguments, then its token, then calls the tool. Errors follow the contract.

This is independent of the transport. A validation error names fields and rules, and has no value that the caller sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp.types import CallToolRequestParams, CallToolResult, InputRequiredResult

from ....agent import WorldAgent
from ....core.errors import AgentClosed, InvalidArgument, WorldAgentError
from ..access import Grant
from ..contract import TOOLS
from ..contract.turns import Answer
from ..contract.words import ThreadArguments
from ..misfits import ArgumentsInvalid
from ..ports import Refused
from .advice import advised, name_turn
from .answering import answered, checked, failed
from .call import Call, CallFacts, Context, SidecarParts
from .changing import cancel, fork, thread_rename, thread_role_clear, thread_role_set
from .events import events
from .reading import explain_role, history, pauses, threads
from .surfaces import resume, surface

_log = logging.getLogger("worldagent.sidecar")

Tool = Callable[[Any, WorldAgent], Awaitable[Answer | InputRequiredResult]]

_RUN: Final[dict[str, Tool]] = {
    "converse": surface,
    "task": surface,
    "run_skill": surface,
    "run_scheduled": surface,
    "resume": resume,
    "events": events,
    "pauses": pauses,
    "cancel": cancel,
    "history": history,
    "fork": fork,
    "thread_rename": thread_rename,
    "thread_role_set": thread_role_set,
    "thread_role_clear": thread_role_clear,
    "explain_role": explain_role,
    "threads": threads,
}


async def call_tool(
    house: SidecarParts, ctx: Context, params: CallToolRequestParams, *, grant: Grant, noted: CallFacts
) -> CallToolResult | InputRequiredResult:
    """Run one of the contract's tools. Except for cancellation, it raises nothing.

    Args:
        house: The parts that all calls share.
        ctx: The request.
        params: Its params.
        grant: The grant of the caller's token.
        noted: Collects facts about the call, for the request log among others.
    """
    advice: Mapping[str, Any] = {}
    failure: WorldAgentError | Refused
    try:
        if house.client_roles is not None:
            house.client_roles.serve(ctx.session)
        call = _checked(house, ctx, params, grant, noted)
        async with house.agents.use(call.caller.workspace) as agent:
            try:
                answer = await _RUN[call.tool](call, agent)
            except WorldAgentError as error:
                await name_turn(call, agent, error)
                advice = await advised(call, agent, error)
                raise
        return answered(answer) if isinstance(answer, Answer) else _asking(answer, noted)
    except AgentClosed as error:
        failure = house.agents.refusal() if house.agents.draining else error
    except (WorldAgentError, Refused) as error:
        failure = error
    except Exception as error:  # of any type: custom code runs below; the text can hold what the caller sent
        _log.error("%s failed: %s", params.name, type(error).__name__)
        failure = Refused(
            "internal",
            "the sidecar failed with an internal error",
            remedy="look at its log, or ask its operator",
            turn_id=noted.turn,
        )
    noted.code, noted.turn = failure.code, advice.get("turn_id") or failure.turn_id or noted.turn
    return failed(failure, advice)


def _checked(
    house: SidecarParts, ctx: Context, params: CallToolRequestParams, grant: Grant, noted: CallFacts
) -> Call[Any]:
    model = TOOLS[params.name].arguments
    given = checked(model, params.arguments or {})
    if isinstance(given, ArgumentsInvalid):
        raise InvalidArgument(f"the arguments are invalid: {given.problem}", remedy=given.remedy)
    caller = grant.caller(given.workspace, given.account)
    noted.workspace = caller.workspace
    if isinstance(given, ThreadArguments):
        grant.check_thread(given.thread)
        noted.thread = given.thread
    return Call(house=house, ctx=ctx, params=params, given=given, grant=grant, caller=caller, noted=noted)


def _asking(result: InputRequiredResult, noted: CallFacts) -> InputRequiredResult:
    noted.code = "input_required"
    return result


__all__ = ["call_tool"]
