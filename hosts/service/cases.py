"""The call that tells a case: what followed from one event, one message or one turn (A17)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ...core.checks import to_json
from .arguments import WorkspaceArguments
from .call import Call
from .home import stores_of
from .operation import operation
from .records import Answer
from .validation import Label, Wire

if TYPE_CHECKING:
    from ...members.cases import Case
    from .home import Workspace


class CaseShowArguments(WorkspaceArguments):
    """Arguments of `case_show`."""

    id: Label = Field(
        description="the id of an event, of a message between members, of a turn that sent one, or of the case",
        examples=["lead-7"],
    )


class CaseStepRecord(Wire):
    """Something that happened in a case."""

    at: datetime = Field(description="when it began")
    kind: str = Field(description="event, decision, message, spawn, turn, call, or budget where one is reached")
    who: str = Field(description="the member, the person or the source that did it")
    what: str = Field(description="what it did, in one line")
    authority: str = Field(description="what allowed it, such as a rule or the person who approved it; empty: nothing")
    why: str = Field(description="the reason that was given; empty: none")
    result: str = Field(description="how it stands")
    id: str = Field(description="the id of the event, the message, the turn or the call")
    turn_id: str = Field(description="the turn in which it was done, whose trace `turn_trace` returns; empty: none")
    usage: dict[str, Any] | None = Field(description="of a turn: what its models used; null is not known")


class CaseCost(Wire):
    """What the turns of one member, or of one account, used."""

    who: str
    calls: int = Field(description="calls of models")
    input_tokens: int | None = Field(description="null means unknown")
    output_tokens: int | None = Field(description="null means unknown")
    cost: float | None = Field(description="US dollars; null means unknown")


class CaseRecord(Wire):
    """A case with its trail."""

    id: str
    open: bool = Field(description="whether something of it is still to be done, or waits for a person")
    cut: bool = Field(description="whether it has more messages than are shown")
    steps: list[CaseStepRecord] = Field(description="what happened, in order")
    costs: list[CaseCost]


class CaseShowAnswer(Answer):
    """Answer of `case_show`."""

    case: CaseRecord


@operation(
    "Tell a case",
    "All that followed from one event, one message of a person or one turn, for the owner and operators: who did what, "
    "what allowed it, why, and what it cost.",
    who="owner",
)
async def case_show(call: Call[CaseShowArguments], workspace: Workspace) -> CaseShowAnswer:
    """Return a case.

    Raises:
        UnknownCase: The workspace has no event, message or turn with this id.
        InvalidArgument: The workspace has no society.
    """
    from ...members.cases import case_with

    found = await case_with(stores_of(workspace), workspace.society, call.given.id)
    return CaseShowAnswer(case=case_record(found))


def case_record(case: Case) -> CaseRecord:
    """A case as an answer has it."""
    names = CaseCost.model_fields.keys() - {"who"}
    costs = [{"who": who, **{name: getattr(used, name) for name in names}} for who, used in case.costs.items()]
    about = {name: getattr(case, name) for name in ("id", "open", "cut")}
    steps = [
        {
            **{name: getattr(each, name) for name in CaseStepRecord.model_fields},
            "usage": None if each.usage is None else to_json(each.usage),
        }
        for each in case.steps
    ]
    return CaseRecord.model_validate({**about, "costs": costs, "steps": steps})
