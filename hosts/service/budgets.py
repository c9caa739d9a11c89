"""The calls about the budgets of members: what they used, who waits, and extending or ending that (A16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ...core.checks import to_json
from ...members.data.limits import MemberLimits, Period
from .arguments import WorkspaceArguments
from .call import Call
from .operation import operation
from .records import Answer
from .validation import Label, Wire

if TYPE_CHECKING:
    from ...members.budgets import BudgetState
    from .home import Workspace


class BudgetExtendArguments(WorkspaceArguments):
    """Arguments of `budget_extend`."""

    member: Label = Field(description="the member; `brief ID` and `case ID` are the other holders", examples=["cro"])
    turns: int | None = Field(default=None, ge=0, description="turns; null: any number")
    calls: int | None = Field(default=None, ge=0, description="calls of models; null: any number")
    tokens: int | None = Field(default=None, ge=0, description="tokens of models; null: any number")
    cost: float | None = Field(default=None, ge=0, description="US dollars; null: any number")
    period: Period = Field(default="life", description="how long the limits hold before they begin again, in UTC")


class BudgetEndArguments(WorkspaceArguments):
    """Arguments of `budget_end`."""

    work: Label = Field(description="the id of the message or the event that waits", examples=["msg_over"])


class BudgetRecord(Wire):
    """What a member, a brief or a case can use and has used in its current period."""

    holder: str = Field(description="`member ID`, `brief ID` with the id of the message, or `case ID`")
    limits: dict[str, Any] | None = Field(description="null: it has none of its own")
    used: dict[str, int | float] = Field(description="what it and all below it spent and reserved")
    reserved: dict[str, int | float] = Field(description="what of that is reserved")
    until: str | None = Field(description="when its period ends; null: never")
    share: float = Field(description="how much of its limits is used; 1 is all of one of them")
    text: str = Field(description="what is used, in a line")


class HeldRecord(Wire):
    """A message or an event that waits because a budget is reached."""

    work: str = Field(description="the id of the message, or the case of the event")
    member: str = Field(description="who is to do it")
    case: str
    holder: str = Field(description="whose budget is reached")
    since: str


class BudgetListAnswer(Answer):
    """Answer of `budget_list`."""

    budgets: list[BudgetRecord] = Field(description="those with limits")
    held: list[HeldRecord] = Field(description="the work that waits, the longest waiting first")


class BudgetExtendAnswer(Answer):
    """Answer of `budget_extend`."""

    budget: BudgetRecord


class BudgetEndAnswer(Answer):
    """Answer of `budget_end`."""

    ended: str = Field(description="the work")


@operation(
    "List budgets",
    "The budgets of members, briefs and cases with what is used of them, and the work that waits for one, for the "
    "owner and operators.",
    who="owner",
)
async def budget_list(call: Call[WorkspaceArguments], workspace: Workspace) -> BudgetListAnswer:
    """List the budgets, and what waits for them."""
    budgets = workspace.society.budgets
    held = [HeldRecord.model_validate(to_json(each)) for each in await budgets.held()]
    return BudgetListAnswer(budgets=[budget_record(each) for each in await budgets.list()], held=held)


@operation(
    "Extend a budget",
    "Replace the limits of a member, within those above it. Work that waits for them goes on.",
    who="owner",
    effect="changes",
)
async def budget_extend(call: Call[BudgetExtendArguments], workspace: Workspace) -> BudgetExtendAnswer:
    """Replace the limits of a member.

    Raises:
        BudgetInvalid, UnknownMember: As for `Budgets.extend`.
    """
    given = call.given
    names = ("turns", "calls", "tokens", "cost", "period")
    limits = MemberLimits(**{name: getattr(given, name) for name in names})
    return BudgetExtendAnswer(budget=budget_record(await workspace.society.budgets.extend(given.member, limits)))


@operation(
    "End work at its budget",
    "End a message or an event that waits because a budget is reached: its sender is told, or the event is cancelled.",
    who="owner",
    effect="changes",
)
async def budget_end(call: Call[BudgetEndArguments], workspace: Workspace) -> BudgetEndAnswer:
    """End work that waits.

    Raises:
        BudgetInvalid: It does not wait for a budget.
    """
    await workspace.society.budgets.end(call.given.work)
    return BudgetEndAnswer(ended=call.given.work)


def budget_record(state: BudgetState) -> BudgetRecord:
    """A budget as an answer has it."""
    limits = None if state.limits is None else state.limits.to_json()
    given = {name: value for name, value in to_json(state).items() if name != "member"}
    return BudgetRecord.model_validate({"until": None, **given, "limits": limits, "text": state.to_text()})
