"""Approvals: applies the gate's verdict to a step, and records how a person or an approver answered (H9)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..core import ROOT, canonical_json
from ..core.errors import AnswerInvalid, CallRefused, TaskFailed, WorldAgentError
from ..core.events import CallDecided
from ..core.pauses import Approve, Reject
from .function import Function
from .gate import BOUNDED, Caller, Verdict
from .gate.arguments import declared_keys
from .gate.labels import OWN, told
from .guard import guarded
from .inside import Inside, without_exit
from .journal import UNATTENDED, Ask, CallRecord, Step, decision_of, pause_of
from .revealing import confirm

if TYPE_CHECKING:
    from .context import CallContext

_LOG = logging.getLogger("worldagent.calls")
_REFUSED: Final = "; other arguments for it were refused: "


async def require_approval(step: Step, callee: Function, ctx: CallContext, shape: Function | None = None) -> None:
    """Decide about a step before it runs.

    Sets on the step who decided, and either the approval request (`ask`) or the refusal.

    Args:
        step: The step, which is changed; its input is the params as JSON.
        callee: The function that is called; its `params` declare the step's input.
        ctx: The context of the caller.
        shape: The shape that is called by name to run the callee; see `Gate.decide`.
    """
    drive, gate, caller = ctx.frame.drive, ctx.gate, ctx.current_caller
    record = drive.recorded(step.id)
    if record is not None and (record.over or (record.state != "waiting" and record.gate is not None)):
        step.by, step.labels = record.by, (record.recorded_decision or {}).get("labels", {})
        step.told = _told(step, callee) if step.labels else {}
        return  # decided in an earlier run
    # The options of a tool of the model's service are the host's.
    followed = step.kind != "offer" and gate.follows(caller, ctx.resolved)
    step.labels = _labels(step, callee, ctx, record) if followed else _labels_shown(record)
    if record is not None and record.answered:  # a person's answer counts, even if approval is no longer required
        verdict = gate.by_policy(callee, step.input, caller, shape, resolved=ctx.resolved)
        if verdict.decision != "refuse":
            verdict = Verdict("ask", "person", pause_of(record).reason, verdict.approvers)
    else:
        verdict = gate.decide(callee, step.input, caller, shape, resolved=ctx.resolved)
    step.told = _told(step, callee, verdict.decided) if followed else {}
    if ctx.scope.account is not None and (ctx.on_behalf_of == ROOT or ctx.handed) and not verdict.approvers:
        verdict = replace(verdict, approvers=callee.approvers)
    if verdict.decision == "approve":
        step.by, step.gate = (
            verdict.by,
            _note("approve", verdict.by, caller, callee, step, held=ctx.resolved is not None),
        )
        return
    if verdict.decision == "ask" and not drive.can_ask and caller.model_influenced:
        verdict = replace(verdict, decision="refuse", reason=f"{verdict.reason}, and no person can be asked here")
    if verdict.decision == "ask":
        ctx = replace(ctx, caller=caller)  # what a model influences while a person is asked does not change the caller
        _ask(step, verdict, callee, ctx, shape)
        if not await _unanswered(step, verdict, callee, ctx):
            return
        why = f"{verdict.reason}, and no person watches this unattended turn"
        verdict = replace(verdict, decision="refuse", by=UNATTENDED, reason=why)
    if record is None:
        emit_decision(ctx, step, "refuse", verdict.by)
    _refuse(step, verdict, callee, caller)


def _told(step: Step, callee: Function, decided: Collection[str] = ()) -> Mapping[str, Any]:
    """Where the arguments come from as events have it: each of them, also the person's."""
    order = {name: place for place, name in enumerate(step.input)}
    named = {path.partition(".")[0] for path in step.labels}
    own = order.keys() & declared_keys(callee.params) - named if "" not in named else ()
    labels = {**step.labels, **{name: OWN.to_json() for name in own}}
    return told(dict(sorted(labels.items(), key=lambda each: order.get(each[0].partition(".")[0], -1))), decided)


def _labels(step: Step, callee: Function, ctx: CallContext, record: CallRecord | None) -> Mapping[str, Any]:
    shown = _labels_shown(record)
    return shown or ctx.gate.labels(callee, step.input, ctx.current_caller, resolved=ctx.resolved)


def _labels_shown(record: CallRecord | None) -> Mapping[str, Any]:
    """The labels of a call that waits for a person, as they were shown, whatever is declared now."""
    return {} if record is None or record.ask is None else pause_of(record).labels


async def _unanswered(step: Step, verdict: Verdict, callee: Function, ctx: CallContext) -> bool:
    """Whether an unattended turn must refuse the step, because no approver in the process has answered."""
    made, refuses = ctx.frame.drive.recorded(step.id) is not None, ctx.frame.drive.refuses(step.id)
    if (refuses or not made) and await _answered_at_once(step, callee, ctx):
        return False
    if not refuses and not made:
        emit_decision(ctx, step, "ask", verdict.by)
    return refuses


async def _answered_at_once(step: Step, callee: Function, ctx: CallContext) -> bool:
    """Ask the approver in the process; return whether it decided, so that no person is asked."""
    if ctx.gate.approver is None:
        return False
    try:
        with Inside.as_host():
            asked = without_exit(ctx.gate.approver(step.pause(ctx.frame.drive.now())))
            answer = await guarded(asked, what="the approver", on_error=ctx.on_error)
        if answer is None:
            return False
        if isinstance(answer, Approve | Reject):
            _take(step, answer, callee, ctx)
            return True
        raise AnswerInvalid(
            f"the approver must return Approve, Reject or None, got {type(answer).__name__!r}",
            remedy="return one of these from it",
        )
    except WorldAgentError as error:
        if ctx.on_error is not None and not isinstance(error, TaskFailed):  # `guarded` reported a TaskFailed
            ctx.on_error(error)
        code = error.code
    _LOG.warning("the approver gave no valid answer to %s (%s); a person must answer", step.id, code)
    return False


def _refuse(step: Step, verdict: Verdict, callee: Function, caller: Caller) -> None:
    step.refusal = CallRefused(
        f"the call of {callee.name!r} is refused: {verdict.reason}", remedy="do without it, or ask for something else"
    )
    step.ask, step.by, step.gate = None, verdict.by, _note(verdict.decision, verdict.by, caller, callee, step)


def _ask(step: Step, verdict: Verdict, callee: Function, ctx: CallContext, shape: Function | None) -> None:
    """Request approval for the step. Arguments that a person changes are validated and checked by the policy again."""
    fits = step.check

    def check(arguments: Any) -> Any:
        taken = arguments if fits is None else fits(arguments)
        now = ctx.gate.by_policy(callee, taken, ctx.caller, shape, before=step.input, resolved=ctx.resolved)
        if now.decision == "refuse":
            if step.ask is not None:
                before = step.ask.reason.partition(_REFUSED)[0]
                step.ask = replace(step.ask, reason=f"{before}{_REFUSED}{now.reason}")
            raise AnswerInvalid(
                f"{step.name!r} cannot be called with these arguments: {now.reason}", remedy="change the arguments"
            )
        return taken

    def noted(decision: str, said: Mapping[str, Any]) -> str:
        return _record_decision(decision, "expired" if decision == "refuse" else "person", said, step, callee, ctx)

    step.ask = Ask(
        kind="approval",
        function=callee.name,
        schema=callee.params.model_json_schema(),
        risk=callee.risk,
        description=callee.description,
        reason=verdict.reason,
        caller=ctx.caller.name,
        approvers=verdict.approvers,
        seconds=verdict.expires,
        labels=step.labels,
    )
    step.by, step.check, step.noted = "person", check, noted


def _take(step: Step, answer: Approve | Reject, callee: Function, ctx: CallContext) -> None:
    """Apply an approver's answer to the step, as if a person had given it."""
    said = decision_of(step.pause(ctx.frame.drive.now()), answer)
    if said["kind"] == "reject":
        emit_decision(ctx, step, "reject", "approver")
        verdict = Verdict("refuse", "approver", said["reason"] or "it was rejected")
        _refuse(step, verdict, callee, ctx.caller)
        return
    arguments, check = said.get("arguments"), step.check
    if arguments is not None and check is not None:
        check(arguments)
    decision = "approve" if arguments is None else "modify"
    step.ask, step.by = None, "approver"
    step.gate = _record_decision(decision, "approver", said, step, callee, ctx)


def _record_decision(
    decision: str, by: str, said: Mapping[str, Any], step: Step, callee: Function, ctx: CallContext
) -> str:
    """Emit the decision and remember an "always" in the gate; return the text that the journal keeps."""
    kept = {name: said[name] for name in ("account", "always", "arguments") if name in said}
    labels = step.labels
    if "arguments" in kept and labels:
        labels = ctx.gate.labels(callee, kept["arguments"], ctx.caller, step.input, ctx.resolved)
    if said.get("always"):
        changed = said.get("arguments")
        taken = step.input if changed is None or step.check is None else step.check(changed)
        covered = None if said["always"] == "any" else taken
        grant = ctx.gate.grant(callee, ctx.caller, covered, None if ctx.resolved is None else labels)
        kept |= {"always": "any" if said["always"] == "any" else "same"}
        kept |= {"covers": grant.covers, "description": grant.description}
    step.labels = labels
    if "arguments" in kept and step.told:
        step.told = _told(step, callee)
    emit_decision(ctx, step, decision, by, said.get("account"))
    return _note(decision, by, ctx.caller, callee, step, held=ctx.resolved is not None, **kept)


def _note(
    decision: str, by: str, caller: Caller, callee: Function, step: Step, *, held: bool = False, **more: Any
) -> str:
    """Return the text that the journal keeps of a decision.

    Args:
        decision: The decision.
        by: Who decided.
        caller: The caller.
        callee: The function.
        step: The step.
        held: Whether the model that makes the call does not read what strangers can have written.
        more: Further parts.
    """
    if decision in ("approve", "modify"):
        result: dict[str, Any] = {}
        if callee.bounds is not None:
            result = {"form": BOUNDED}
        elif callee.untrusted:
            result = {"form": "words", **({"fields": [*callee.fields]} if callee.fields else {})}
        restricted = callee.readers is not None or callee.place is not None
        if held and (callee.untrusted or restricted or callee.kind != "leaf"):
            result["held"] = True
        if callee.guard:
            result["guard"] = True
        if callee.body is confirm.body:
            result = {"confirmed": True}
        if result:
            more["result"] = result
    if step.labels:
        more["labels"] = step.labels
    if not more:
        return plain_note(decision, by, caller.name, callee.name)
    return canonical_json({"decision": decision, "by": by, "caller": caller.name, "function": callee.name, **more})


@lru_cache(maxsize=256)
def plain_note(decision: str, by: str, caller: str, function: str) -> str:
    """Return the text that the journal keeps of a decision without further parts."""
    return canonical_json({"decision": decision, "by": by, "caller": caller, "function": function})


def emit_decision(ctx: CallContext, step: Step, decision: str, by: str, account: str | None = None) -> None:
    """Send the event of a decision about a step."""
    ctx.emit(
        CallDecided,
        call_id=step.id,
        function=step.name,
        parent=step.parent,
        decision=decision,
        gate=by,
        account=account,
        labels=step.told,
    )
