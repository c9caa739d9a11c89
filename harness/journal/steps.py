"""Steps, which a body requests, and the requests to a person. `drive` runs them."""

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
from .records import CallKind


class Suspended(Enum):
    """The value of a call that waits for a person, or did not run because the turn is being stopped."""

    SUSPENDED = "suspended"


SUSPENDED: Final = Suspended.SUSPENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request to a person, which must be answered before a step runs.

    Attributes:
        kind: An approval, a question, or an interrupted effect (`uncertain`).
        function: The name of the function, if the step has another name.
        question: The text of a question.
        options: The answers to choose from.
        schema: The JSON Schema of the answer.
        seconds: How long to wait for an answer; None waits for ever.
        risk: What the function does to the world, for an approval.
        description: The description of the function, for an approval.
        reason: Why approval is required.
        caller: The caller of the function.
        approvers: Globs over the accounts that can answer; empty allows any account.
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
        """Return why an approval of the earlier request is not valid for this one; empty if it is valid.

        Args:
            asked: The earlier request, as the journal keeps it.
            account: The account that approved it.
        """
        if not may_answer(account, self.approvers):
            return f"one of these accounts must now answer: {', '.join(self.approvers)}"
        more = [risk for risk in self.risk if risk not in asked.get("risk", self.risk)]
        if more:
            return f"its risk now includes {' and '.join(more)}"
        # Versions up to 0.1.0 did not record the description.
        changed = asked.get("description", self.description) != self.description
        return "its description has changed since it was shown" if changed else ""

    def json(self, problem: str | None = None) -> str:
        """Return the request as JSON for the journal."""
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


async def _missing_body(_: Any) -> Any:
    raise AssertionError("a step must get its body before it runs")


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """Something that a body requests and the journal records: a call, a task, a model call, a question.

    The code that makes a step fills it in before it passes the step to a frame or a drive.

    Attributes:
        id: Its path id.
        parent: The path id of the call, task or turn that requests it.
        name: Its name.
        kind: Its kind.
        input: Its params as JSON.
        text: The same as canonical JSON, if the caller already has it.
        body: Runs the step; returns JSON, or `SUSPENDED`. It receives the recorded decision of the gate. For a question
            it receives the answer instead, and raises if the answer is not valid.
        role: A digest of its role; opaque here.
        ask: The request to a person that must be answered before.
        once: Whether it must not run twice.
        version: A digest of its declared params and result.
        gate: The decision of the gate, as JSON for the journal.
        by: What approved it, or requires approval; see `CallStarted.gate`.
        refusal: Why it is refused; the journal keeps it as the failure of the step.
        result_schema: Returns the JSON Schema of its result, for the person who decides about an interrupted effect.
        check: Validates arguments that a person changed; returns them as JSON, as they will be passed on.
        noted: Receives the decision of a person, or `refuse` if the request expired; returns the JSON that the journal
            keeps.
        slot: Is held while it runs, to bound how many steps run concurrently; not held while it waits for a person.
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
    body: Callable[[Any], Awaitable[Any]] = _missing_body
    noted: Callable[[str, Mapping[str, Any]], str] | None = None
    slot: AbstractAsyncContextManager[Any] | None = None

    def pause(self, since: datetime) -> Pause:
        """Return the step's pause, for an approver that can answer at once.

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
        """A digest of its input, by which a replay with another input is noticed."""
        return digest([self.kind, self.input], text=None if self.text is None else f'["{self.kind}",{self.text}]')

    @property
    def kept(self) -> str:
        """Its params as JSON text, as the journal keeps them."""
        return canonical_json(self.input) if self.text is None else self.text
