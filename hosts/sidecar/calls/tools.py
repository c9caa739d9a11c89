"""What a call of a tool comes to: its arguments, then its token, then the tool; every error as the contract has it.

Nothing here knows a transport. A refusal of arguments names fields and rules, and holds no value that was sent.
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
from ..misfits import Misfit
from ..ports import Refused
from .advice import advised, name_turn
from .answering import answered, checked, failed
from .call import Call, Context, House, Noted
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
    house: House, ctx: Context, params: CallToolRequestParams, *, grant: Grant, noted: Noted
) -> CallToolResult | InputRequiredResult:
    """Run one of the contract's tools. Nothing but a cancellation comes out of it as an exception.

    Args:
        house: What all calls share.
        ctx: The request.
        params: Its params.
        grant: What the caller's token reaches.
        noted: Takes what the request log may say of the call.
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
    except Exception as error:  # not by name: functions of others run below; the text may hold what was sent
        _log.error("%s failed: %s", params.name, type(error).__name__)
        failure = Refused(
            "internal",
            "the sidecar failed inside",
            remedy="look into its log, or ask whoever runs it",
            turn_id=noted.turn,
        )
    noted.code, noted.turn = failure.code, advice.get("turn_id") or failure.turn_id or noted.turn
    return failed(failure, advice)


def _checked(house: House, ctx: Context, params: CallToolRequestParams, grant: Grant, noted: Noted) -> Call[Any]:
    model = TOOLS[params.name].arguments
    given = checked(model, params.arguments or {})
    if isinstance(given, Misfit):
        raise InvalidArgument(f"the arguments do not fit: {given.problem}", remedy=given.remedy)
    caller = grant.caller(given.workspace, given.account)
    noted.workspace = caller.workspace
    if isinstance(given, ThreadArguments):
        grant.check_thread(given.thread)
        noted.thread = given.thread
    return Call(house=house, ctx=ctx, params=params, given=given, grant=grant, caller=caller, noted=noted)


def _asking(result: InputRequiredResult, noted: Noted) -> InputRequiredResult:
    noted.code = "input_required"
    return result


__all__ = ["call_tool"]
