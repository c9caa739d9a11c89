"""What is recorded of a workspace, one JSON object a line: what `workspace events --export` writes (A23)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from ...core.checks import to_json
from ...core.errors import InvalidArgument
from ...core.validation import describe_failure
from ..data.roles import Feedback, RoleSpec, RoleStatus, TrustProfile
from ..data.workspace import Event, RoleTemplate, RoutingDecision
from .events import read_event

_MOST: Final = 10**9  # hundredths


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMember:
    """A member when it was made: one of the file, one of a template, or one that code added.

    Attributes:
        spec: Its definition at the end.
        name: The name of its role.
        began: Its first state: a draft and one in testing become active later.
        status: Its state at the end.
        trust: How far it is trusted at the end.
        by_event: The event that it was made by; empty for none.
    """

    kind: Literal["member"] = "member"
    at: AwareDatetime
    spec: RoleSpec
    name: str
    began: RoleStatus
    status: RoleStatus
    trust: TrustProfile
    by_event: str = ""

    @property
    def is_made(self) -> bool:
        """Whether it was made of a template."""
        return bool(self.spec.created_by or self.spec.parent_role_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A state that a member reached."""

    kind: Literal["step"] = "step"
    at: AwareDatetime
    member: str
    status: RoleStatus
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event when it was posted; `to` is the member that the host named."""

    kind: Literal["event"] = "event"
    at: AwareDatetime
    event: Event
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """The last decision about an event when it was made, and what came of it.

    Attributes:
        event: The event.
        member: The member that decided; empty for none.
        trail: The members that forwarded the event.
        decision: The decision.
        state: How far the event is: `decided`, `paused` or `done`.
        result: Its result; None until it is over.
        code: The code of its error.
        ended: When it was over.
        approvals: What people were asked in its turn and answered: `function` and `decision`.
        cost: US dollars of the models of its turn, as far as its trace is kept and has prices.
    """

    kind: Literal["decision"] = "decision"
    at: AwareDatetime
    event: str
    member: str
    trail: tuple[str, ...] = ()
    decision: RoutingDecision
    state: str
    result: str | None = None
    code: str = ""
    ended: AwareDatetime | None = None
    approvals: tuple[Mapping[str, Any], ...] = ()
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOutcome:
    """What came of something that a member did; `event` is the event that it did it for, empty for none."""

    kind: Literal["outcome"] = "outcome"
    at: AwareDatetime
    episode: str
    member: str
    capability: str
    succeeded: bool
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFeedback:
    """What a person said last of an episode."""

    kind: Literal["feedback"] = "feedback"
    at: AwareDatetime
    episode: str
    feedback: Feedback


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTemplate:
    """A template that is not of the file, such as an approved draft."""

    kind: Literal["template"] = "template"
    template: RoleTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSum:
    """What outcomes that are no longer kept did to the trust of a member, in hundredths."""

    kind: Literal["sum"] = "sum"
    member: str
    capability: str
    shift: Annotated[int, Field(ge=-_MOST, le=_MOST)]
    low: Annotated[int, Field(ge=0, le=100)]
    high: Annotated[int, Field(ge=0, le=100)]


_Timed: TypeAlias = (
    RecordedMember | RecordedStep | RecordedEvent | RecordedDecision | RecordedOutcome | RecordedFeedback
)
Recorded: TypeAlias = _Timed | RecordedTemplate | RecordedSum
"""One line."""

BEGIN: Final = '{"kind": "'
"""How a file of such lines begins."""

_ORDER: Final = ("member", "step", "event", "decision", "outcome", "feedback")  # of what has the same time


def in_order(lines: Iterable[Recorded]) -> list[Recorded]:
    """Lines in the order in which they happened; what has no time comes first."""
    first, timed = list[Recorded](), list[_Timed]()
    for each in lines:
        if isinstance(each, RecordedTemplate | RecordedSum):
            first.append(each)
        else:
            timed.append(each)
    timed.sort(key=lambda each: (each.at, _ORDER.index(each.kind)))
    return [*first, *timed]


def read_week(text: str, name: str) -> list[Recorded]:
    """Read what `written` wrote, or events as `workspace emit` takes them, one a line.

    Args:
        text: The lines.
        name: Where they are from, for the errors.

    Raises:
        InvalidArgument: A line is neither; the text has its number.
    """
    lines: list[Recorded] = []
    for number, line in enumerate(
        text.removeprefix("\ufeff").split("\n"), start=1
    ):  # texts can have other ends of lines
        if not line.strip():
            continue
        problem, remedy = "it is not JSON", "export the events again"
        with suppress(ValueError, RecursionError):
            given = json.loads(line)
            try:
                lines.append(_read(given))
                continue
            except InvalidArgument as error:
                problem, remedy = error.problem, error.remedy
        raise InvalidArgument(f"line {number} of {name!r}: {problem}", remedy=remedy)
    return in_order(lines)


def _read(given: object) -> Recorded:
    if not isinstance(given, Mapping) or "kind" not in given:
        event = read_event(given, now=datetime.now(UTC))
        return RecordedEvent(at=event.timestamp, event=event)
    try:
        return _adapter().validate_python(given)
    except ValidationError as failure:
        problem = describe_failure(failure)[:500]
    raise InvalidArgument(
        f"`worldagent workspace events --export` writes no such line: {problem}", remedy="export the events again"
    )


def written(lines: Iterable[Recorded]) -> str:
    """Lines as text."""
    return "".join(f"{json.dumps(to_json(each), ensure_ascii=False)}\n" for each in lines)


@cache
def _adapter() -> TypeAdapter[Recorded]:
    return TypeAdapter(Annotated[Recorded, Field(discriminator="kind")])
