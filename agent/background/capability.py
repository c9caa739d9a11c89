"""Work in the background as a capability: what models call to dispatch it, look after it, and end it (T17)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from ...core import digest
from ...core.capability import Capability, Runtime
from ...core.errors import (
    FunctionInvalid,
    InvalidArgument,
    NothingToSteer,
    NotSteerable,
    ParamsInvalid,
    ToolFailed,
    ToolNotAllowed,
    UnknownFunction,
    UnknownWorker,
)
from ...graphs.shape import SKILL, SUBAGENT
from ...harness import CallContext, Function, flow
from ...harness.gate import is_like
from ...memory import TurnRecord, thread_key
from ...memory.reports import ReportMode
from ..requests import Say, Skill, Task
from ..runtime.inside import AgentRuntime, inside
from ..thread import Thread
from .tasks import BackgroundTask, check_report, dispatch, tasks_of

_REQUEST: Final = "request"


class Background(Capability["Background"]):
    """Lets conversations dispatch workers, shapes and skills in the background, if these are declared for it.

    Args:
        report: What the reports of work do that a model dispatched, where no turn runs: `"turn"` begins a turn,
            `"next"` waits for the next one, `"event"` is only an event of the account.

    Raises:
        InvalidArgument: `report` is none of these.
    """

    name = "background"
    after = ("mcp", "skills")

    def __init__(self, report: ReportMode = "turn") -> None:
        self.report: Final = check_report(report)

    @classmethod
    def of(cls, given: Any) -> Background:
        if isinstance(given, cls):
            return given
        if given is True:
            return cls()
        raise InvalidArgument(
            f"`background` must be True or a Background, got a {type(given).__name__!r}", remedy="pass True, or omit it"
        )

    def functions(self, runtime: Runtime) -> Iterable[Function]:
        return BackgroundFunctions(inside(runtime), self.report).functions


class BackgroundFunctions:
    """The functions of models.

    Args:
        agent: The agent.
        report: What the reports of its work do.
    """

    def __init__(self, agent: AgentRuntime, report: ReportMode) -> None:
        self._agent = agent
        self._report: ReportMode = report

    @property
    def functions(self) -> tuple[Function, ...]:
        """All of them."""

        @flow(title="Work in the background")
        async def background_start(
            ctx: CallContext, name: str, request: str = "", params: dict[str, Any] | None = None
        ) -> dict[str, str]:
            """Let a worker, a kind of work or a skill work in the background while you go on, and be told when it ends.

            Args:
                name: its name, as you would call it; not all can work in the background
                request: what it should do; all it needs to know
                params: its arguments, in place of the request, if it takes others
            """
            return await self._start(ctx, name, request, params)

        @flow(title="Look at background tasks")
        async def background_check(ctx: CallContext) -> list[dict[str, Any]]:
            """Look how your background tasks stand. Do not wait for them by this: you are told when they end."""
            shown = [(each, await each.state()) for each in await self._tasks(ctx)]
            return [
                {
                    "task": each.id,
                    "name": each.name,
                    "status": state.status,
                    "code": state.code,
                    "dispatched": each.at.isoformat(timespec="seconds"),
                    "cost": state.usage.cost,
                }
                for each, state in shown
            ]

        @flow(title="Say something to a background task")
        async def background_say(ctx: CallContext, task: str, text: str) -> str:
            """Say something to a background task, which it reads at its next step.

            Args:
                task: its id
                text: what you say
            """
            return await self._say(ctx, task, text)

        @flow(title="Cancel a background task")
        async def background_cancel(ctx: CallContext, task: str) -> str:
            """Cancel a background task.

            Args:
                task: its id
            """
            found = await self._find(ctx, task)
            return "It is cancelled." if await found.cancel() else "It was over."

        made = (background_start, background_check, background_say, background_cancel)
        # What its work calls counts as calls of the caller, so it can do nothing that work in the foreground cannot.
        return tuple(replace(each, calls_as_caller=True) for each in made)

    async def _start(self, ctx: CallContext, name: str, request: str, params: dict[str, Any] | None) -> dict[str, str]:
        thread, turn = self._thread(ctx), await self._turn(ctx)
        if turn.kind in ("task", "skill"):
            raise ToolNotAllowed(
                "only a conversation can let something work in the background, because it is told of the end",
                remedy="call it directly",
            )
        given = self._request(ctx, name, request, params)
        task = await dispatch(
            self._agent.runner, given, thread, report=self._report, key=ctx.path, left=ctx.budget.left
        )
        return {"task": task.id, "status": "dispatched"}

    def _request(self, ctx: CallContext, name: str, request: str, params: dict[str, Any] | None) -> Task | Skill:
        """The request of what a model names, if it could also call it itself.

        Raises:
            UnknownWorker, ToolNotAllowed, ParamsInvalid: It cannot be dispatched; the text says why.
        """
        if not request and params is None:
            raise ParamsInvalid("`request` is missing", remedy="say what it should do, or pass its `params`")
        if name in self._skills():
            self._check_tool(ctx, SKILL, name)
            return Skill(name, {_REQUEST: request} if params is None else params)
        try:
            function = ctx.registry.function(name)
        except UnknownFunction:
            function = None
        if function is None or not function.background or function.kind not in ("worker", "shape"):
            raise UnknownWorker(
                f"{str(name)[:80]!r} cannot work in the background; those that can are: "
                f"{', '.join(self._names(ctx)) or 'none'}",
                remedy="declare it with background=True, or call it directly",
            )
        self._check_tool(ctx, name, name)
        if function.kind == "shape":
            return Task(name, {_REQUEST: request} if params is None else params)
        return Task(SUBAGENT, {"worker": name, _REQUEST: request if params is None else params})

    @staticmethod
    def _check_tool(ctx: CallContext, tool: str, name: str) -> None:
        if ctx.tools is not None and not is_like(tool, ctx.tools):
            raise ToolNotAllowed(f"{name!r} is not among your tools", remedy="go on without it")

    def _skills(self) -> list[str]:
        """The skills whose packages say that they can work in the background."""
        found = self._agent.opened.get("skills")
        usable = () if found is None else found.usable
        return [each.name for each in usable if str(each.metadata.get("background", "")).lower() == "true"]

    def _names(self, ctx: CallContext) -> list[str]:
        found = [each.name for each in ctx.registry.declared if each.background]
        return [name for name in found if ctx.tools is None or is_like(name, ctx.tools)] + self._skills()

    async def _say(self, ctx: CallContext, task: str, text: str) -> str:
        found = await self._find(ctx, task)
        if not text.strip():
            raise ParamsInvalid("`text` is empty", remedy="say something")
        # They are the words of a model, never those of the person.
        start = {**found.thread._start(Say(text)), "sender": ctx.caller.name}
        try:
            await found.say(start, ctx.path)
        except NothingToSteer:
            await self._report_again(ctx, found)
            status = (await found.state()).status
            return f"It did not read this: it is {status}. What it reported follows."
        except NotSteerable:
            problem = f"the background task {found.id!r} runs code that reads no messages"
        else:
            return "It reads this at its next step."
        raise ToolFailed(problem, remedy="wait for its end, or cancel it")

    async def _report_again(self, ctx: CallContext, task: BackgroundTask) -> None:
        """Let the turn read once more what a task that is over reported, with its marks."""
        stores = self._agent.stores
        report = await stores.background.report(task.thread.scope, thread_key(self._thread(ctx).scope))
        if report is not None and report.turn is not None:
            again = replace(
                report,
                id=f"report-{digest([report.id, ctx.path], length=24)}",
                start={**report.start, "report": "next", "spent": {}},
                turn=None,
                round=None,
                step=None,
                began=False,
            )
            await stores.inbox.put(again)

    async def _find(self, ctx: CallContext, task: str) -> BackgroundTask:
        tasks = await self._tasks(ctx)
        for each in tasks:
            if each.id == task:
                return each
        known = ", ".join(each.id for each in tasks) or "none"
        raise ToolFailed(f"there is no background task {task[:40]!r}; they are: {known}", remedy="use one of them")

    async def _tasks(self, ctx: CallContext) -> tuple[BackgroundTask, ...]:
        return await tasks_of(self._agent.runner, self._thread(ctx), own=True)

    def _thread(self, ctx: CallContext) -> Thread:
        if ctx.scope.thread is None:
            raise FunctionInvalid("this call belongs to no turn", remedy="use agent.background(...)")
        return Thread(self._agent.runner, ctx.scope, _on_behalf_of=ctx.on_behalf_of)

    async def _turn(self, ctx: CallContext) -> TurnRecord:
        found = await self._agent.stores.turns.get(ctx.path.partition("/")[0])
        if found is None:
            raise FunctionInvalid("this call belongs to no turn", remedy="use agent.background(...)")
        return found


__all__ = ["Background"]
