"""The calls about the board: which briefs there are, how far they are, and moving one (A19)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ...members.board import MAX_PAGE
from ...members.mail.posted import BriefState
from .arguments import WorkspaceArguments
from .call import Call
from .operation import operation
from .records import Answer
from .validation import Label, Wire

if TYPE_CHECKING:
    from ...members.mail.posted import PostedBrief
    from .home import Workspace


class BoardListArguments(WorkspaceArguments):
    """Arguments of `board_list`."""

    member: Label | None = Field(default=None, description="the member or person that has them; null is any")
    giver: Label | None = Field(default=None, description="in place of `member`: who gave them; null is any")
    state: BriefState | None = Field(default=None, description="only those in this state; null is all")
    limit: int = Field(default=100, ge=1, le=MAX_PAGE, description="briefs in the answer, at most")
    after: Label | None = Field(
        default=None, description="the id of the last brief of the page before; null: the first"
    )


class BoardMoveArguments(WorkspaceArguments):
    """Arguments of `board_move`."""

    brief: Label = Field(description="the id of the brief", examples=["msg_0b7d6c1e"])
    move: Literal["retry", "reassign", "close"] = Field(description="what to do with it", examples=["retry"])
    to: Label | None = Field(
        default=None, description="for `reassign`: a contact of the one that gave it", examples=["legal"]
    )
    reason: str = Field(default="", max_length=2000, description="for `close`: why")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.move == "reassign") != (self.to is not None):
            raise PydanticCustomError("to", "reassign needs `to`, and the other moves do not have it")
        if (self.move == "close") != bool(self.reason):
            raise PydanticCustomError("reason", "close needs `reason`, and the other moves do not have it")
        return self


class BriefRecord(Wire):
    """A task brief, and how far it is."""

    id: str
    state: BriefState
    member: str = Field(description="the member or person that has it")
    giver: str = Field(description="who gave it")
    objective: str
    brief: dict[str, Any] = Field(description="all its fields")
    deadline: datetime | None = Field(default=None, description="null is none")
    after: list[str] = Field(description="the ids of the briefs that it depends on")
    unmet: int = Field(description="how many of them are not done")
    attempt: int = Field(description="how often it was delivered, with this time")
    note: str = Field(description="what was said of it last; empty for nothing")
    returned: bool = Field(description="whether it went back to the one that gave it, and waits to be reassigned")
    untrusted: list[str] = Field(description="the untrusted functions and senders whose content it was made of")
    case: str = Field(description="the case that it belongs to, which `case_show` tells")
    given: datetime = Field(description="when it was given first")
    changed: datetime = Field(description="when it changed last")


class BoardListAnswer(Answer):
    """Answer of `board_list`."""

    briefs: list[BriefRecord] = Field(description="the newest first")


class BoardMoveAnswer(Answer):
    """Answer of `board_move`."""

    brief: BriefRecord


@operation(
    "List briefs",
    "The task briefs of the workspace's members, for its owner and operators: who has each, how far it is, and why.",
    who="owner",
)
async def board_list(call: Call[BoardListArguments], workspace: Workspace) -> BoardListAnswer:
    """Return a page of the board.

    Raises:
        UnknownBrief: There is no brief `after`.
    """
    given, board = call.given, workspace.society.board
    page: dict[str, Any] = {"state": given.state, "limit": given.limit, "after": given.after or ""}
    if given.giver is not None:
        found = await board.given_by(given.giver, **page)
    else:
        found = await (board.list(**page) if given.member is None else board.of(given.member, **page))
    return BoardListAnswer(briefs=[_record(each) for each in found])


@operation(
    "Move a brief",
    "Give a task brief to its member again, give it to another member, or close it as failed.",
    who="owner",
    effect="changes",
    idempotent=False,
    open_world=True,
)
async def board_move(call: Call[BoardMoveArguments], workspace: Workspace) -> BoardMoveAnswer:
    """Move a brief as the owner.

    Raises:
        UnknownBrief: There is no such brief.
        UnknownContact: `to` is not a contact of the one that gave the brief.
        MessageInvalid, MailboxFull: It cannot be moved so.
    """
    given, board = call.given, workspace.society.board
    if given.to is not None:
        return BoardMoveAnswer(brief=_record(await board.reassign(given.brief, given.to)))
    closing = given.move == "close"
    return BoardMoveAnswer(
        brief=_record(await (board.close(given.brief, given.reason) if closing else board.retry(given.brief)))
    )


def _record(posted: PostedBrief) -> BriefRecord:
    due = posted.brief.deadline
    return BriefRecord.model_validate(
        {
            **{
                name: getattr(posted, name)
                for name in ("id", "state", "member", "giver", "unmet", "attempt", "note", "case", "given", "changed")
            },
            "objective": posted.brief.objective,
            "brief": posted.brief.to_json(),
            "deadline": due if isinstance(due, datetime) else None,
            "after": [*posted.brief.after],
            "returned": not posted.message,
            "untrusted": sorted({*posted.marks, *posted.note_marks}),
        }
    )
