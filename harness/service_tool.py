"""Tools that the service of a model runs itself, inside a model call: their declaration, the gate, and what came back.

No call of such a tool passes the pipeline, because none is made here. The gate judges whether the model is offered the
tool, before each model call, and what the service says that it did is recorded afterwards (H9).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter

from ..core import canonical_json, digest
from ..core.errors import AnswerInvalid, CallRefused, FunctionInvalid, PauseExpired, ToolFailed
from ..core.events import CallEnded, CallStarted, Risk
from ..core.generation import CODE_EXECUTION, FILE_SEARCH, SERVICE_TOOLS, WEB_FETCH, WEB_SEARCH
from .approval import plain_note, require_approval
from .bounds import Bounds
from .context import CallContext
from .function import Body, Function, FunctionKind
from .journal import SUSPENDED, CallRecord, Step
from .limits import Limits, Retry
from .places import Place

_ABOUT: Final = {
    WEB_SEARCH: "Search the web",
    WEB_FETCH: "Read pages of the web",
    CODE_EXECUTION: "Run code",
    FILE_SEARCH: "Search files that are stored at the service",
}
_RISK: Final[tuple[Risk, ...]] = ("network",)
_LISTED: Final = f"use one of {', '.join(SERVICE_TOOLS)}"


class _Options(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


async def _elsewhere(**_: Any) -> Any:
    raise ToolFailed(
        "only the service of a model can run this tool, while it answers", remedy="let a model use it, or call another"
    )


@dataclass(frozen=True, slots=True)
class ServiceTool(Function):
    """A tool that the service of the model runs itself, such as its web search. It goes where functions go: `tools=`.

    Its risk is `network`, and what comes back is untrusted. The gate judges at each model call whether the model is
    offered it, because the service asks nobody before it runs it. At a service that lacks it, it is left out.

    Attributes:
        name: `web_search`, `web_fetch`, `code_execution` or `file_search`.
        options: What the service is told about it, in the words of that service, such as `{"max_uses": 3}` for
            Anthropic. A `type` there chooses another version.
        approval: Whether a person must approve it in each turn, even if the policy does.
        capture: Whether events may hold what the model asked the tool for, such as a search query.

    Raises:
        FunctionInvalid: No service has a tool of this name, or the options are not JSON, or `file_search` has none.
    """

    body: Body = field(default=_elsewhere, init=False)
    params: type[BaseModel] = field(default=_Options, init=False)
    result: TypeAdapter[Any] = field(default_factory=lambda: TypeAdapter(Any), init=False)
    kind: FunctionKind = field(default="leaf", init=False)
    idempotent: bool = field(default=False, init=False)
    risk: tuple[Risk, ...] = field(default=_RISK, init=False)
    untrusted: bool = field(default=True, init=False)
    tools: tuple[str, ...] | None = field(default=None, init=False)
    timeout: float | None = field(default=None, init=False)
    retry: Retry = field(default_factory=Retry, init=False)
    context: bool = field(default=False, init=False)
    capture: bool = True
    limits: Limits = field(default_factory=Limits, init=False)
    calls_as_caller: bool = field(default=False, init=False)
    variant: str = field(default="", init=False)
    dry_run: Body | None = field(default=None, init=False)
    fields: tuple[str, ...] = field(default=(), init=False)
    place: Place | None = field(default=None, init=False)
    bounds: Bounds | None = field(default=None, init=False, repr=False, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        if self.name not in SERVICE_TOOLS:
            raise FunctionInvalid(f"no service has a tool {self.name!r}", remedy=_LISTED)
        problem, kept = "", None
        try:
            kept = json.loads(canonical_json(self.options)) if isinstance(self.options, Mapping) else None
        except (TypeError, ValueError):
            problem = "must be JSON"
        if kept is None:
            problem = problem or f"must be a mapping, got {type(self.options).__name__!r}"
        elif self.name == FILE_SEARCH and not kept:
            problem = "must name what is searched"
        if problem:
            raise FunctionInvalid(
                f"the options of the tool {self.name!r} {problem}", remedy="pass the options of the model's service"
            )
        object.__setattr__(self, "options", kept)
        object.__setattr__(self, "variant", canonical_json(kept) if kept else "")
        if not self.description:
            object.__setattr__(self, "description", f"{_ABOUT[self.name]}. The service of the model runs this itself.")
        Function.__post_init__(self)


@dataclass(slots=True, kw_only=True)
class _Judged:
    """The answer about a tool that holds for the rest of a turn.

    Attributes:
        allowed: Whether it is offered.
        marks: What untrusted text the turn had read. An approval does not hold once it has read more.
        by: What decided.
    """

    allowed: bool
    marks: frozenset[str] = frozenset()
    by: str = ""


class ServiceTools:
    """The service tools of one conversation or worker, in one turn.

    Args:
        tools: The tools.
        ctx: The context of its calls.
    """

    def __init__(self, tools: Sequence[ServiceTool], ctx: CallContext) -> None:
        # Whether a tool is used is for the model to say, also before it has said anything.
        self._ctx = replace(ctx, caller=ctx.caller.with_model_influence(model_influenced=True))
        self._tools = {tool.name: tool for tool in tools}
        self._by: dict[str, str] = {}
        self._judged = {
            record.name: _judged_in(record)
            for record in sorted(ctx.frame.drive.recorded_below(ctx.path), key=lambda record: record.at)
            if record.kind == "offer" and record.over
        }

    async def offered(self, think_id: str, names: frozenset[str]) -> Any:
        """Let the gate judge which tools a model is offered, and ask a person where it says so.

        An answer of a person holds for the rest of the turn, an approval until the turn reads untrusted text of a
        further source. What was refused is not judged again in the turn.

        Args:
            think_id: The path id of the model call.
            names: The tools that the model's service has.

        Returns:
            The tools, or `SUSPENDED` if a person has to answer first; none once a limit of calls is reached.
        """
        if not self._ctx.budget.can_call():
            return []
        allowed, waits = [], False
        for tool in self._tools.values():
            step_id, there = self._step_id(think_id, tool.name), tool.name in names
            if there or self._ctx.frame.drive.recorded(step_id) is not None:  # what was asked is answered in any case
                found = await self._judge(tool, step_id)
                waits = waits or found is SUSPENDED
                if there and found is True:
                    allowed.append(tool)
        return SUSPENDED if waits else allowed

    def _step_id(self, think_id: str, name: str) -> str:
        """The path id of a decision. After an answer that was rejected, the same step can need another one."""
        drive, number = self._ctx.frame.drive, 0
        while (record := drive.recorded(f"{think_id}.offer-{number}:{name}")) is not None and record.over:
            number += 1
        return f"{think_id}.offer-{number}:{name}"

    async def _judge(self, tool: ServiceTool, step_id: str) -> Any:
        ctx, before = self._ctx, self._judged.get(tool.name)
        if before is not None and (not before.allowed or ctx.gate.marks <= before.marks):
            self._by[tool.name] = before.by
            return before.allowed
        marks = sorted(ctx.gate.marks)

        async def approved(_: Any) -> Any:
            return marks

        def unchanged(given: Any) -> Any:
            if given != tool.options:
                raise AnswerInvalid(
                    f"the options of {tool.name!r} cannot be changed", remedy="approve them as they are, or reject them"
                )
            return given

        step = Step(
            id=step_id,
            parent=ctx.path,
            name=tool.name,
            kind="offer",
            input=dict(tool.options),
            version=tool.declared,
            body=approved,
            check=unchanged,
        )
        drive = ctx.frame.drive
        await require_approval(step, tool, ctx)
        self._by[tool.name] = step.by
        if step.ask is None and step.refusal is None and step.by != "approver" and drive.recorded(step_id) is None:
            return True  # by the policy, which judges the next model call anew
        try:
            if await drive.run(step) is SUSPENDED:
                return SUSPENDED
        except (CallRefused, PauseExpired):
            self._judged[tool.name] = _Judged(allowed=False)
            return False
        self._judged[tool.name] = _Judged(allowed=True, marks=frozenset(marks), by=step.by)
        return True

    async def record(self, think_id: str, calls: Sequence[Mapping[str, Any]]) -> None:
        """Record what a service did in a model call: marks, limits, events, the trace and the journal have it.

        It has happened, so that no limit refuses it.

        Args:
            think_id: The path id of the model call.
            calls: The calls: each with `tool`, `arguments`, `result` and `failed`.
        """
        ctx = self._ctx
        for place, call in enumerate(calls):
            name, given = str(call["tool"]), dict(call["arguments"])
            # A model call that is made again after a kill does other things under the same id.
            call_id = f"{think_id}.{place}-{digest(dict(call), length=8)}:{name}"
            self._tell(call_id, name, given, call)
            step = Step(id=call_id, parent=ctx.path, name=name, kind="service", input=given, once=True)
            step.gate = plain_note("approve", self._by.get(name, "default"), ctx.caller.name, name)
            await ctx.frame.drive.keep(step, {"result": call["result"], "failed": call["failed"]})

    def _tell(self, call_id: str, name: str, given: Mapping[str, Any], call: Mapping[str, Any]) -> None:
        ctx, tool = self._ctx, self._tools.get(name)
        captured = tool is None or tool.capture
        ctx.gate.mark(name)
        ctx.budget.note(call_id)
        ctx.emit(
            CallStarted,
            call_id=call_id,
            function=name,
            title="" if tool is None else tool.title,
            parent=ctx.path,
            risk=_RISK,
            gate=self._by.get(name, "default"),
            arguments=given if captured else None,
        )
        if captured:
            ctx.emit.keep(call_id, "inputs", given)
            ctx.emit.keep(call_id, "outputs", call["result"])
        failed = bool(call["failed"])
        code = ToolFailed.code if failed else None
        ctx.emit(CallEnded, call_id=call_id, status="failed" if failed else "done", code=code)


def _judged_in(record: CallRecord) -> _Judged:
    if record.state == "failed":
        return _Judged(allowed=False)
    return _Judged(allowed=True, marks=frozenset(json.loads(record.result or "[]")), by=record.by)
