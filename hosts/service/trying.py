"""The calls that export recorded events, and replay them with another file of the workspace (A23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ...harness.yaml import LONGEST
from ...members.events.recorded import read_week, written
from .arguments import WorkspaceArguments
from .call import Call
from .home import stores_of
from .operation import operation
from .records import Answer

if TYPE_CHECKING:
    from ...agent import WorldAgent
    from ...members.events.recorded import Recorded

MAX_LINES = 16 * LONGEST
"""Characters of recorded events that one call can bring."""


class EventExportArguments(WorkspaceArguments):
    """Arguments of `event_export`."""


class EventExportAnswer(Answer):
    """Answer of `event_export`."""

    lines: str = Field(description="JSON Lines, in the order of what happened, for `workspace_try`")
    events: int = Field(description="how many events they have")


class WorkspaceTryArguments(WorkspaceArguments):
    """Arguments of `workspace_try`."""

    file: Annotated[str, Field(min_length=1, max_length=LONGEST)] = Field(
        description="the text of the file of the workspace, with its souls in it", examples=["workspace: team\n..."]
    )
    lines: Annotated[str, Field(max_length=MAX_LINES)] | None = Field(
        default=None,
        description="what `event_export` returned, or events, one JSON object a line; default: what is recorded",
    )


class WorkspaceTryAnswer(Answer):
    """Answer of `workspace_try`."""

    tried: dict[str, Any] = Field(
        description="`events` with what was decided `then` and would be decided now, the `members` with their trust, "
        "how often a person is `asked`, and the `costs`"
    )


@operation(
    "Export events",
    "All recorded events of the workspace with decisions, outcomes, feedback, approvals and members, as JSON Lines, "
    "for the owner and operators.",
    who="owner",
)
async def event_export(call: Call[EventExportArguments], agent: WorldAgent) -> EventExportAnswer:
    """Return what is recorded of the events.

    Raises:
        InvalidArgument: The workspace has no society.
    """
    lines = await _recorded(agent)
    return EventExportAnswer(lines=written(lines), events=sum(each.kind == "event" for each in lines))


@operation(
    "Try a workspace file",
    "Replay recorded events with another file of the workspace, and show which decisions, approvals, members and trust "
    "would differ, for the owner and operators. Nothing is run or stored.",
    who="owner",
)
async def workspace_try(call: Call[WorkspaceTryArguments], agent: WorldAgent) -> WorkspaceTryAnswer:
    """Replay recorded events with another file.

    Raises:
        WorkspaceInvalid: The file cannot be used.
        InvalidArgument: The workspace has no society, or a line is not what `event_export` returns.
    """
    from ...members.trying import try_week
    from ...members.workspace_file import parse_workspace

    given = call.given.lines
    week = await _recorded(agent) if given is None else read_week(given, "lines")
    config = parse_workspace(call.given.file)
    return WorkspaceTryAnswer(tried=try_week(config, week).to_json())


async def _recorded(agent: WorldAgent) -> list[Recorded]:
    from ...members.exporting import recorded

    return await recorded(stores_of(agent), agent.society.config.id, agent.traces)
