"""Validates rows of the journal when they are read. A row that is not valid is never run, shown or trusted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, model_validator

from ...core.events import Risk
from ...core.pauses import PauseKind
from ...storage import Moment, Row

CallKind = Literal["leaf", "flow", "task", "model", "program", "question", "round"]
CallState = Literal["waiting", "started", "done", "failed", "uncertain", "withdrawn"]


Always = Literal["same", "any"]
"""The calls that a person's "always" covers for the rest of the turn; versions up to 0.1.0 wrote true."""


class _Asked(BaseModel):
    kind: PauseKind
    question: str | None = None
    options: list[str] | None = None
    declared: dict[str, Any] | None = Field(None, alias="schema")
    problem: str | None = None
    risk: list[Risk] = []
    description: str = ""
    reason: str = ""
    caller: str = ""
    approvers: list[str] = []


class _StoredGateDecision(BaseModel):
    decision: Literal["approve", "modify", "reject", "refuse"]
    by: str
    caller: str = ""
    function: str = ""
    account: str | None = None
    always: bool | Always = False
    covers: str = ""
    description: str = ""
    arguments: dict[str, Any] | None = None


class _Decision(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Plain(_Decision):
    kind: Literal["lost", "again"]


class _Approval(_Decision):
    kind: Literal["approve"]
    account: str | None = None
    always: bool | Always = False
    arguments: dict[str, Any] | None = None


class _Refusal(_Decision):
    kind: Literal["reject"]
    reason: str
    account: str | None = None


class _Value(_Decision):
    kind: Literal["answer", "happened"]
    value: Any


_ANSWERS = {
    "approval": ("approve", "reject"),
    "question": ("answer",),
    "uncertain": ("happened", "lost", "again"),
}


class _Failure(BaseModel):
    code: str
    problem: str
    remedy: str


class StoredCall(Row):
    """A row of `wa_call`."""

    id: str
    turn: str
    parent: str
    name: str
    kind: CallKind
    hash: str
    state: CallState
    epoch: int
    at: Moment
    input: Json[Any] | None
    ask: Json[_Asked] | None
    decision: Json[Annotated[_Plain | _Approval | _Refusal | _Value, Field(discriminator="kind")]] | None
    result: Json[Any] | None
    role: str | None
    expires: Moment | None
    version: str | None
    gate: Json[_StoredGateDecision] | None

    @model_validator(mode="after")
    def _fits_its_kind_and_state(self) -> StoredCall:
        if self.kind in ("leaf", "flow", "task") and not isinstance(self.input, dict | None):
            raise ValueError("the input of a call must be an object")
        if (self.kind == "question") != (self.ask is not None and self.ask.kind == "question"):
            raise ValueError("a question must have a request of kind 'question', and no other call can have one")
        if self.decision is not None and (self.ask is None or self.decision.kind not in _ANSWERS[self.ask.kind]):
            raise ValueError("the decision does not fit the request")
        if self.state == "failed":
            _Failure.model_validate(self.result)
        return self
