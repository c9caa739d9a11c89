"""What a body can ask for, as values. What becomes of it is decided in `drive`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from ...core import canonical_json, digest
from ...core.errors import WorldAgentError
from ...core.events import Risk
from ...core.pauses import Pause, PauseKind, may_answer
from .stored import CallKind


class Suspended(Enum):
    """What a call gives instead of a result while a person is asked, or the turn is to stop."""

    SUSPENDED = "suspended"


SUSPENDED: Final = Suspended.SUSPENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a person is asked before a step is done.

    Attributes:
        kind: Whether it is leave for a call or a question.
        function: What is to be called, where that is not what the step is called.
        question: What is asked.
        options: What can be answered.
        schema: The JSON Schema of the answer.
        seconds: How long an answer is waited for; None is for ever.
        risk: What the function does to the world, for leave.
        description: What the function says it does, for leave.
        reason: Why leave is needed.
        caller: Who wants to make the call.
        approvers: Globs over the accounts that may answer; empty is anybody.
    """

    kind: PauseKind
    function: str = ""
    question: str | None = None
    options: tuple[str, ...] | None = None
    schema: dict[str, Any] | None = None
    seconds: float | None = None
    risk: tuple[Risk, ...] = ()
    description: str = ""
    reason: str = ""
    caller: str = ""
    approvers: tuple[str, ...] = ()

    def outdated(self, asked: Mapping[str, Any], account: str | None) -> str:
        """Why leave that was given for what was asked then is none for this; empty if it is.

        Args:
            asked: What was asked, as the journal keeps it.
            account: Who gave it.
        """
        if not may_answer(account, self.approvers):
            return f"by now one of these must answer: {', '.join(self.approvers)}"
        more = [risk for risk in self.risk if risk not in asked.get("risk", self.risk)]
        if more:
            return f"by now it is {' and '.join(more)}"
        # Versions up to 0.1.0 did not record the description.
        changed = asked.get("description", self.description) != self.description
        return "its description has changed since it was shown" if changed else ""

    def json(self, problem: str | None = None) -> str:
        """As the journal keeps it."""
        given = {"question": self.question, "options": self.options, "schema": self.schema, "problem": problem}
        asked = {
            "function": self.function,
            "risk": self.risk,
            "reason": self.reason,
            "caller": self.caller,
            "approvers": self.approvers,
        }
        return canonical_json(
            {"kind": self.kind}
            | ({"description": self.description} if self.kind == "approval" else {})
            | {name: value for name, value in given.items() if value is not None}
            | {name: value for name, value in asked.items() if value}
        )


async def _undone(_: Any) -> Any:
    raise AssertionError("a step is given its body before it is done")


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """Something that a body asks for and that is recorded: a call, a task, a model's answer, a question.

    Whoever makes it fills it in until it is handed over to a frame or a drive.

    Attributes:
        id: Its path id.
        parent: The path id of who asks for it.
        name: What it is called.
        kind: What it is.
        input: Its params as JSON.
        text: The same as canonical JSON, where that is there already.
        body: Does it; gives JSON, or `SUSPENDED`. It gets what the gate said, or for a question the answer, which it
            reads; it raises if that does not fit.
        role: Stands for the role it gets; opaque here.
        ask: What a person is asked before.
        once: Whether doing it twice would be doing it once too often.
        version: Stands for what its params and its result are declared as.
        gate: What the gate said of it, as JSON for the journal.
        by: What let it through, or asks; see `CallStarted.gate`.
        refusal: Why it is not done; the journal keeps it as its failure.
        result_schema: Gives the JSON Schema of its result, for the person who decides about an interrupted effect.
        check: Validates other arguments that a person gave; returns them as JSON, as they will be passed on.
        noted: Hears of what a person decided, or of `refuse` where nobody did in time;
            gives what the journal keeps, as JSON.
        slot: Is held while it is done, so that not too many are at the same time; one that waits for a person has none.
    """

    id: str
    parent: str
    name: str
    kind: CallKind
    input: Any
    text: str | None = None
    role: str | None = None
    ask: Ask | None = None
    once: bool = False
    version: str | None = None
    gate: str | None = None
    by: str = ""
    refusal: WorldAgentError | None = None
    result_schema: Callable[[], dict[str, Any]] | None = None
    check: Callable[[Any], Any] | None = None
    body: Callable[[Any], Awaitable[Any]] = _undone
    noted: Callable[[str, Mapping[str, Any]], str] | None = None
    slot: AbstractAsyncContextManager[Any] | None = None

    def pause(self, since: datetime) -> Pause:
        """The pause that it would be, for one who can answer at once.

        Args:
            since: The time by the turn's clock.
        """
        assert self.ask is not None
        seconds = self.ask.seconds
        return Pause(
            id=self.id,
            kind=self.ask.kind,
            function=self.ask.function or self.name,
            arguments=json.loads(self.kept),  # a copy: a task reads its params from `input`
            hash=self.hash,
            risk=self.ask.risk,
            description=self.ask.description,
            reason=self.ask.reason,
            caller=self.ask.caller,
            approvers=self.ask.approvers,
            schema=self.ask.schema,
            since=since,
            expires=None if seconds is None else since + timedelta(seconds=seconds),
        )

    @property
    def hash(self) -> str:
        """Stands for its input, so that a replay that asks for something else is noticed."""
        return digest([self.kind, self.input], text=None if self.text is None else f'["{self.kind}",{self.text}]')

    @property
    def kept(self) -> str:
        """Its params as the journal keeps them."""
        return canonical_json(self.input) if self.text is None else self.text
