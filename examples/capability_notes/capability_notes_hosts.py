"""What hosts let people and programs ask for: tools of the sidecar, paths of the web app, and commands."""

from __future__ import annotations

from typing import Any

from capability_notes import Notes
from pydantic import Field

from worldagent.agent import WorldAgent
from worldagent.core import new_id
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.service.arguments import WorkspaceArguments
from worldagent.hosts.service.call import Call
from worldagent.hosts.service.operation import operation
from worldagent.hosts.service.records import Answer


class AddArguments(WorkspaceArguments):
    """Arguments of `notes_add`."""

    text: str = Field(min_length=1, max_length=1000, description="the note")


class ListArguments(WorkspaceArguments):
    """Arguments of `notes_list`."""

    words: str = Field(default="", max_length=200, description="only notes that contain this text")


class NotesAnswer(Answer):
    """The notes of an account, newest first."""

    notes: list[str]


@operation("Write a note", "Write a note for the account.")
async def notes_add(call: Call[AddArguments], agent: WorldAgent) -> NotesAnswer:
    """Write a note, and return all of them."""
    notes, account = agent.get(Notes), _account(call)
    await notes.add(account, new_id("note"), call.given.text)
    return NotesAnswer(notes=await notes.find(account))


@operation("List the notes", "List the notes of the account, newest first.")
async def notes_list(call: Call[ListArguments], agent: WorldAgent) -> NotesAnswer:
    """Return the notes."""
    return NotesAnswer(notes=await agent.get(Notes).find(_account(call), call.given.words))


def _account(call: Call[Any]) -> str:
    if call.caller.account is None:
        raise InvalidArgument("notes belong to an account, and the call has none", remedy="name one in `account`")
    return call.caller.account


OPERATIONS = (notes_add, notes_list)
