"""The tools of the contract, their published JSON Schemas, and how a call of one is answered.

The functions in `service` do the work, except for calls that follow a turn over MCP (`turns`, `following`). An error
about invalid arguments names fields and rules, and has no value that the caller sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args, get_type_hints

from mcp.types import CallToolRequestParams, CallToolResult, InputRequiredResult, TextContent

from ...agent import WorldAgent
from ...core.errors import AgentClosed, InvalidArgument, WorldAgentError
from ...scheduling import Schedules
from ..service import events as workspace_events
from ..service import functions, memory, roles, schedules, skills, society, threads
from ..service.arguments import (
    ConverseArguments,
    ResumeArguments,
    RoleSetArguments,
    ScheduledArguments,
    SkillArguments,
    TaskArguments,
    ThreadArguments,
    WorkspaceArguments,
)
from ..service.call import CallFacts, Grant, Refused, check_thread
from ..service.following import turn_feedback
from ..service.next_steps import advised, error_record, name_turn
from ..service.records import Answer, ErrorAnswer, RoleSetAnswer, TurnAnswer
from ..service.validation import validated
from ..serving import ToolSpec, tool_schemas
from .following import Context, SidecarParts, ToolCall, events
from .turns import resume, surface

_LOG = logging.getLogger("worldagent.sidecar")

Run = Callable[[Any, WorldAgent], Awaitable[Answer | InputRequiredResult]]


async def _thread_role_set(call: ToolCall[RoleSetArguments], agent: WorldAgent) -> RoleSetAnswer:
    """Run `thread_role_set`. The pool keeps the agent open as long as it holds the role."""
    answer = await threads.thread_role_set(call, agent)
    seconds = agent.settings.thread_role_ttl if call.given.ttl is None else call.given.ttl
    call.parts.agents.hold_role(call.caller.workspace, seconds)
    return answer


async def _schedule_run(call: ToolCall[schedules.ScheduleArguments], agent: WorldAgent) -> schedules.ScheduleRunAnswer:
    """Run `schedule_run`. The agent stays open and the turn is counted until the run ends or waits for a person."""
    agents, workspace, fired = call.parts.agents, call.caller.workspace, Schedules(agent)
    answer: asyncio.Future[schedules.ScheduleRunAnswer] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with agents.use(workspace):
            with agents.turn(workspace, (call.caller.account, object())):
                answer.set_result(await schedules.schedule_run(call, agent, fired))
                await fired.settled()

    running = agents.spawn(run())
    waited: set[asyncio.Future[Any]] = {running, answer}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        running.result()  # raises why there is none
    return answer.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarTool(ToolSpec):
    """A tool of the contract.

    Attributes:
        run: Answers a call of it.
    """

    arguments: type[WorkspaceArguments]
    run: Run


def _turn(title: str, arguments: type[WorkspaceArguments], description: str, run: Run = surface) -> SidecarTool:
    """Return a tool that runs a turn. In the turn, the agent can do whatever its tools can."""
    return SidecarTool(
        title=title,
        arguments=arguments,
        answer=TurnAnswer,
        run=run,
        description=f"{description} {_LASTS}",
        effect="changes",
        idempotent=False,
        open_world=True,
    )


def _tool(title: str, run: Run, description: str, **more: Any) -> SidecarTool:
    """Return a tool. The annotations of its function name the models of its arguments and its answer."""
    types = get_type_hints(run, localns={"WorldAgent": Any, "Threads": Any})  # they are not loaded for this
    [arguments] = get_args(types["call"])
    return SidecarTool(
        title=title, arguments=arguments, answer=types["return"], run=run, description=description, **more
    )


_LASTS: Final = (
    "The turn continues when the client disconnects, cancels the request or times out, unless `detach` is false; "
    "`cancel` ends it, and `next`, `pauses` and `events` lead back to it. With a progress token, "
    "events and heartbeats come as progress, so the client can restart its time-out at each."
)

TOOLS: Final[dict[str, SidecarTool]] = {
    "converse": _turn("Converse", ConverseArguments, "Say something on a thread and get the agent's answer."),
    "task": _turn("Run a task", TaskArguments, "Dispatch one task to a shape and get its typed result."),
    "run_skill": _turn("Run a skill", SkillArguments, "Run a skill by its name, or a shape with a prompt added to it."),
    "run_scheduled": _turn("Run a schedule", ScheduledArguments, "Run a turn because a schedule fired."),
    "resume": _turn(
        "Resume a turn",
        ResumeArguments,
        "Resume the thread's turn that waits for a person, was stopped, failed in passing, or was interrupted.",
        resume,
    ),
    "events": _tool(
        "Follow a turn",
        events,
        "Attach to a turn again: its events after a number. Turns begun with `detach` false and without a key keep no "
        "events.",
    ),
    "pauses": _tool(
        "List pauses", threads.pauses, "The status of a thread, and what its turn waits for a person to say."
    ),
    "cancel": _tool(
        "Cancel a turn", threads.cancel, "Cancel the thread's turn, wherever it runs or waits.", effect="changes"
    ),
    "turn_feedback": _tool(
        "Rate a turn",
        turn_feedback,
        "Say whether a turn was good or bad, in place of what was said before. Examples for optimising carry it, and "
        "what members did in the turn counts as good or bad.",
        effect="changes",
    ),
    "history": _tool("Read the history", threads.history, "A page of the conversation, oldest first."),
    "fork": _tool(
        "Fork a thread",
        threads.fork,
        "Make a thread that continues from a message of this one, which stays as it is.",
        effect="adds",
        idempotent=False,
    ),
    "thread_rename": _tool(
        "Rename a thread",
        threads.thread_rename,
        "Set what a thread is called in lists; no model sees it.",
        effect="changes",
    ),
    "thread_archive": _tool(
        "Archive a thread",
        threads.thread_archive,
        "Hide a thread in lists until its next turn, or show it again. Where the agent distils threads, an archived "
        "one is distilled soon.",
        effect="changes",
    ),
    "thread_role_set": _tool(
        "Set the thread's role",
        _thread_role_set,
        "Set or replace the thread's role; it is held in memory alone.",
        effect="changes",
    ),
    "thread_role_clear": _tool(
        "Clear the thread's role", threads.thread_role_clear, "Take the thread's role away.", effect="changes"
    ),
    "explain_role": _tool(
        "Explain the role",
        threads.explain_role,
        "Which tiers of role would be active now, in what order and how long; no content is shown.",
    ),
    "stored_role_list": _tool(
        "List stored roles",
        roles.stored_role_list,
        "Which of the workspace, the account and the channel of the call have a stored role, by name and length; no "
        "content is shown.",
    ),
    "stored_role_set": _tool(
        "Set a stored role",
        roles.stored_role_set,
        "Set or replace the stored role of the account of the call, or as an operator of the workspace or a channel.",
        effect="changes",
    ),
    "stored_role_clear": _tool(
        "Clear a stored role",
        roles.stored_role_clear,
        "Take away the stored role of the account of the call, or as an operator of the workspace or a channel.",
        effect="changes",
    ),
    "threads": _tool(
        "List threads", threads.threads, "The status of the workspace's threads, the one with the newest turn first."
    ),
    "skill_list": _tool(
        "List skills", skills.skill_list, "The skills that the agent can run, by name, each with where it is from."
    ),
    "skill_show": _tool(
        "Show a skill",
        skills.skill_show,
        "One skill: what its package says of it, its version, its files and the tools that it can call.",
    ),
    "function_list": _tool(
        "List functions",
        functions.function_list,
        "What the conversation can call, with its risk and whether the policy asks for approval. Operators, and the "
        "owner of a workspace with members, also see what workers alone can call.",
    ),
    "schedule_add": _tool(
        "Add a schedule",
        schedules.schedule_add,
        "Store what the agent starts at set times for the account of the call. `worldagent worker` fires it.",
        effect="adds",
    ),
    "schedule_list": _tool(
        "List schedules", schedules.schedule_list, "The schedules of the workspace, each with its next slot."
    ),
    "schedule_show": _tool("Show a schedule", schedules.schedule_show, "One schedule with its next slot."),
    "schedule_pause": _tool(
        "Pause a schedule",
        schedules.schedule_pause,
        "Skip the slots of a schedule from now on, or with `paused` false fire them again.",
        effect="changes",
    ),
    "schedule_run": _tool(
        "Fire a schedule now",
        _schedule_run,
        "Fire a schedule once now, also if it is paused. The answer comes once its turn has begun; `next` follows it.",
        effect="changes",
        idempotent=False,
        open_world=True,
    ),
    "schedule_history": _tool(
        "List runs", schedules.schedule_history, "The newest runs of a schedule, and why some were skipped or failed."
    ),
    "schedule_remove": _tool(
        "Remove a schedule",
        schedules.schedule_remove,
        "Remove a schedule and its history. Turns that it started stay.",
        effect="changes",
    ),
    "memory_add": _tool(
        "Remember something",
        memory.memory_add,
        "Write a memory entry of the account of the call. Without an account it is the workspace's, which all accounts "
        "see and only an operator writes.",
        effect="adds",
        idempotent=False,
    ),
    "memory_list": _tool(
        "List entries", memory.memory_list, "A page of the memory entries of the account and of the workspace."
    ),
    "memory_search": _tool(
        "Search entries",
        memory.memory_search,
        "The memory entries of the account and of the workspace that fit a text best, as a turn would recall them.",
    ),
    "memory_show": _tool("Show an entry", memory.memory_show, "One memory entry."),
    "memory_edit": _tool(
        "Edit an entry",
        memory.memory_edit,
        "Change a memory entry. With `version`, only if it was not changed meanwhile.",
        effect="changes",
        idempotent=False,
    ),
    "memory_forget": _tool(
        "Forget entries",
        memory.memory_forget,
        "Delete memory entries, all or none, so that the database holds nothing of them.",
        effect="changes",
    ),
    "memory_distil": _tool(
        "Distil a thread",
        memory.memory_distil,
        "Let the agent's model note, as memory entries, what later conversations should know of a thread. Only turns "
        "that are over and were not distilled yet are read. Only an operator can call it.",
        effect="adds",
    ),
    "society_members": _tool(
        "List members",
        society.society_members,
        "The members of the workspace that are not terminated, for its owner and operators.",
    ),
    "society_contacts": _tool(
        "List contacts",
        society.society_contacts,
        "Whom the person of the call can write to; with `member`, whom that member knows and who introduced them.",
    ),
    "society_graph": _tool(
        "Who knows whom",
        society.society_graph,
        "The members and all contacts, as data and as a Mermaid flowchart, for the owner and operators.",
    ),
    "society_inbox": _tool(
        "Read the inbox",
        society.society_inbox,
        "What members wrote to the person of the call and that is not marked as read, the oldest first.",
    ),
    "society_read": _tool(
        "Mark messages as read",
        society.society_read,
        "Mark messages of the person of the call as read, so that its inbox shows them no more.",
        effect="changes",
    ),
    "society_send": _tool(
        "Write to a member",
        society.society_send,
        "Send a message as the person of the call, or answer one. The member's turn starts while the sidecar, or a "
        "worker, has the agent open.",
        effect="changes",
        idempotent=False,
        open_world=True,
    ),
    "society_spawns": _tool(
        "List members to approve",
        society.society_spawns,
        "The members that wait for the owner's approval, with their tasks, for the owner and operators.",
    ),
    "society_approve": _tool(
        "Approve a member",
        society.society_approve,
        "Let a member that waits for approval begin with its task.",
        effect="changes",
        idempotent=False,
        open_world=True,
    ),
    "society_reject": _tool(
        "Reject a member",
        society.society_reject,
        "End a member that waits for approval. The member that made it is notified.",
        effect="changes",
    ),
    "society_withdraw": _tool(
        "Withdraw a contact",
        society.society_withdraw,
        "Take a contact away from a member: its next message to it is refused, unless it is a reply.",
        effect="changes",
    ),
    "event_post": _tool(
        "Post an event",
        workspace_events.event_post,
        "Post something that happened, for the owner and operators. The first live member of its domain decides what "
        "to do with it, while the sidecar, or a worker, has the agent open.",
        effect="changes",
        idempotent=False,
        open_world=True,
    ),
    "event_list": _tool(
        "List events",
        workspace_events.event_list,
        "The last events of the workspace, the decisions about them, and their results, for the owner and operators.",
    ),
    "society_outcomes": _tool(
        "List what a member did",
        society.society_outcomes,
        "List what a member did, the oldest first, and how far it is trusted with each capability since.",
    ),
    "society_feedback": _tool(
        "Rate what a member did",
        society.society_feedback,
        "Say whether what a member did was good or bad. It counts in place of the outcome, and its trust changes.",
        effect="changes",
    ),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of the contract by name: `converse.input`, `converse.output` and so on, and `error`.

    An `output` accepts the tool's answer and every error; `error` accepts errors only.
    """
    return tool_schemas(TOOLS, ErrorAnswer)


async def call_tool(
    parts: SidecarParts, ctx: Context, params: CallToolRequestParams, *, grant: Grant, facts: CallFacts
) -> CallToolResult | InputRequiredResult:
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
        if isinstance(given, ThreadArguments):
            check_thread(grant, given.thread)
            facts.thread = given.thread
        call = ToolCall(given=given, caller=caller, facts=facts, parts=parts, ctx=ctx, params=params)
        async with parts.agents.use(caller.workspace) as agent:
            try:
                answer = await spec.run(call, agent)
            except WorldAgentError as error:
                await name_turn(call, agent, error)
                advice = await advised(call, agent, error)
                raise
        if isinstance(answer, Answer):
            return answered(answer)
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


def answered(answer: Answer) -> CallToolResult:
    """Return an answer as a tool result. Its text block is the agent's answer if there is one, else the JSON.

    From the JSON, a client that shows only text can read what a paused turn asks, and in `next` how to answer.
    """
    content = answer.model_dump(mode="json")
    text = answer.turn.text if isinstance(answer, TurnAnswer) and answer.turn.status == "done" else None
    return CallToolResult(content=[_block(text or _as_json(content))], structured_content=content)


def failed(failure: WorldAgentError | Refused, advice: Mapping[str, Any]) -> CallToolResult:
    """Return an error as a tool result. `advice` has fields that replace or extend its record."""
    error = error_record(failure, advice)
    content = ErrorAnswer(error=error).model_dump(mode="json", exclude_none=True)
    sentence = f"{error.code}: {error.problem}; {error.remedy}"
    return CallToolResult(
        content=[_block(f"{sentence}\n{_as_json(content)}")], structured_content=content, is_error=True
    )


def _block(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)
