"""The calls about drafts: templates that members propose, and that the owner approves or rejects (A10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ...core.checks import to_json
from ...members.life.drafts import template_of
from .arguments import JsonObject, WorkspaceArguments
from .call import Call
from .operation import operation
from .records import Answer
from .validation import Label

if TYPE_CHECKING:
    from .home import Workspace


class DraftListArguments(WorkspaceArguments):
    """Arguments of `draft_list`."""

    every: bool = Field(default=False, description="whether drafts that were approved or rejected are included")


class DraftArguments(WorkspaceArguments):
    """Arguments of the operations that are about one draft."""

    draft: Label = Field(description="the id of the draft", examples=["draft_123"])


class DraftApproveArguments(DraftArguments):
    """Arguments of `draft_approve`."""

    template: JsonObject | None = Field(default=None, description="the template as it was changed; null: as proposed")
    spawners: list[Label] = Field(
        default_factory=list, max_length=100, description="members that can make members of it; none: only the owner"
    )


class DraftRejectArguments(DraftArguments):
    """Arguments of `draft_reject`."""

    draft: Label = Field(description="the id of the draft", examples=["draft_124"])
    reason: str = Field(default="", max_length=2000, description="why")


class DraftListAnswer(Answer):
    """Answer of `draft_list`."""

    drafts: list[dict[str, Any]] = Field(description="each with its template, who proposed it, and its status")


class DraftAnswer(Answer):
    """Answer of `draft_show`."""

    draft: dict[str, Any] = Field(description="its template, who proposed it and why, and who decided about it")


class DraftApproveAnswer(Answer):
    """Answer of `draft_approve`."""

    approved: str = Field(description="the id of the template")
    spawners: list[str] = Field(description="the members that can make members of it")


class DraftRejectAnswer(Answer):
    """Answer of `draft_reject`."""

    rejected: str = Field(description="the id of the draft, which is kept and can never be used")


@operation("List drafts", "The templates that members propose and that wait for the owner.", who="owner")
async def draft_list(call: Call[DraftListArguments], workspace: Workspace) -> DraftListAnswer:
    """Return the drafts that wait for the owner, or all of them."""
    found = await workspace.society.drafts.list(status=None if call.given.every else "pending_review")
    return DraftListAnswer(drafts=[to_json(each) for each in found])


@operation("Show a draft", "A draft: its template, why it was proposed, and who decided about it.", who="owner")
async def draft_show(call: Call[DraftArguments], workspace: Workspace) -> DraftAnswer:
    """Return one draft.

    Raises:
        UnknownDraft: There is none with this id.
    """
    return DraftAnswer(draft=to_json(await workspace.society.drafts.get(call.given.draft)))


@operation(
    "Approve a draft",
    "Add the template of a draft to the workspace. It never allows more than the member that proposed it may.",
    who="owner",
    effect="changes",
)
async def draft_approve(call: Call[DraftApproveArguments], workspace: Workspace) -> DraftApproveAnswer:
    """Add the template of a draft to the workspace.

    Raises:
        UnknownDraft, DraftClosed, WorkspaceInvalid: As for `Drafts.approve`.
    """
    given = call.given
    template = None if given.template is None else template_of(given.template)
    made = await workspace.society.drafts.approve(
        given.draft, template=template, allowed_spawners=given.spawners or None
    )
    return DraftApproveAnswer(approved=made.template_id, spawners=[*made.allowed_spawners])


@operation("Reject a draft", "Reject a draft. It is kept and can never be used.", who="owner", effect="changes")
async def draft_reject(call: Call[DraftRejectArguments], workspace: Workspace) -> DraftRejectAnswer:
    """Reject a draft.

    Raises:
        UnknownDraft: There is none with this id.
    """
    await workspace.society.drafts.reject(call.given.draft, reason=call.given.reason)
    return DraftRejectAnswer(rejected=call.given.draft)
