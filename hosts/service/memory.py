"""The calls about memory entries: their arguments and records, and what they do (M4).

A call is about the entries of its account, and reads those of the workspace too. Only an operator changes the latter.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from ...core import canonical_json
from ...memory.entries import Classification, Entry, EntryKind
from ...memory.entries.entry import MAX_ENTRY_CHARACTERS, MAX_TAG_CHARACTERS, MAX_TAGS
from ...memory.entries.store import unknown_entry
from .arguments import Moment, ThreadArguments, WorkspaceArguments
from .call import Call, Refused
from .operation import OPERATOR_REMEDY, operation
from .records import Answer
from .validation import Label, Printable, Wire

if TYPE_CHECKING:
    from ...agent.memory import WorkspaceMemory
    from .home import Workspace

# --- arguments --------------------------------------------------------------------------------------------------------

EntryId = Annotated[Label, Field(description="the entry's id", examples=["mem_01f2a3b4c5d6e7f8"])]
EntryText = Annotated[str, Field(min_length=1, max_length=MAX_ENTRY_CHARACTERS)]
Tag = Annotated[str, Field(min_length=1, max_length=MAX_TAG_CHARACTERS), Printable]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]


class MemoryAddArguments(WorkspaceArguments):
    """Arguments of `memory_add`."""

    text: EntryText = Field(
        description="what to remember: one thing, in a sentence that stands alone",
        examples=["Ana is allergic to nuts."],
    )
    kind: EntryKind = Field(default="entry", description="its kind")
    tags: Tags = Field(default_factory=list, description="words to filter by", examples=[["food"]])
    classification: Classification = Field(default="internal", description="how widely it may be known")
    domain: str = Field(default="", max_length=200, description="the area that the classification is of; empty is any")
    confidence: float = Field(default=1.0, ge=0, le=1, description="how certain it is")
    expires: Moment | None = Field(default=None, description="when it is deleted; null is never")
    untrusted: bool = Field(
        default=False, description="whether its source is unchecked; a turn that recalls it is marked"
    )
    key: Label | None = Field(
        default=None,
        description="an idempotency key: a second call of the account with the same key writes nothing, and answers "
        "with the entry of the first",
        examples=["0b7d6c1e"],
    )


class MemoryListArguments(WorkspaceArguments):
    """Arguments of `memory_list`."""

    kind: EntryKind | None = Field(default=None, description="only entries of this kind")
    tags: Tags = Field(default_factory=list, description="only entries with all of these tags", examples=[["food"]])
    replaced: bool = Field(default=False, description="whether entries that newer ones replaced are included")
    limit: int = Field(default=100, ge=1, le=1000, description="entries in the answer, at most")
    before: Label | None = Field(
        default=None, description="the next page: the id of the last entry that you have; it must still exist"
    )


class MemorySearchArguments(WorkspaceArguments):
    """Arguments of `memory_search`."""

    text: EntryText = Field(description="the question", examples=["May I eat nuts?"])
    limit: int = Field(default=10, ge=1, le=100, description="entries in the answer, at most")


class MemoryShowArguments(WorkspaceArguments):
    """Arguments of `memory_show`."""

    entry: EntryId


class MemoryEditArguments(WorkspaceArguments):
    """Arguments of `memory_edit`."""

    entry: EntryId
    text: EntryText | None = Field(default=None, description="the new text; null: as it is")
    tags: Tags | None = Field(default=None, description="the new tags, in place of all; null: as they are")
    expires: Moment | None = Field(
        default=None, description="when it is deleted; null clears it, and without the field it stays as it is"
    )
    version: int | None = Field(
        default=None, ge=1, le=2**53, description="the version that it must still have; null: any"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.text is None and self.tags is None and "expires" not in self.model_fields_set:
            raise PydanticCustomError("no_change", "It must have at least one of text, tags, expires")
        return self


class MemoryForgetArguments(WorkspaceArguments):
    """Arguments of `memory_forget`."""

    entries: list[Label] = Field(
        min_length=1, max_length=100, description="the ids of entries", examples=[["mem_01f2a3b4c5d6e7f8"]]
    )


class MemoryDistilArguments(ThreadArguments):
    """Arguments of `memory_distil`."""


# --- records ----------------------------------------------------------------------------------------------------------


class EntryRecord(Wire):
    """A memory entry."""

    id: str
    version: int = Field(description="1, and one more after each edit")
    text: str
    account: str | None = Field(description="whose entry it is; null: the workspace's, which all accounts see")
    kind: EntryKind
    tags: list[str]
    source: dict[str, str] = Field(
        description="who wrote it (`by`), and from which `thread` and `turn`, if the token reaches the thread"
    )
    untrusted: list[str] = Field(description="the untrusted functions whose results it was made of")
    classification: Classification
    domain: str
    confidence: float
    created: str
    changed: str
    expires: str | None
    replaced_by: str | None = Field(description="the newer entry that contradicts it; no search finds it then")
    # It can have what an event or a message was given, so it is not sent.
    data: SkipJsonSchema[dict[str, Any] | None] = Field(default=None, exclude=True)


class FoundRecord(EntryRecord):
    """A memory entry that a search found."""

    score: float = Field(description="how well it fits, comparable within the answer")


class MemoryEntryAnswer(Answer):
    """Answer of `memory_add`, `memory_show` and `memory_edit`."""

    entry: EntryRecord


class MemoryListAnswer(Answer):
    """Answer of `memory_list`."""

    entries: list[EntryRecord] = Field(description="newest first")


class MemoryDistilAnswer(Answer):
    """Answer of `memory_distil`."""

    entries: list[EntryRecord] = Field(description="the new entries, of all accounts that spoke on the thread")


class MemorySearchAnswer(Answer):
    """Answer of `memory_search`."""

    entries: list[FoundRecord] = Field(description="the best first")


class MemoryForgetAnswer(Answer):
    """Answer of `memory_forget`."""

    forgotten: int = Field(description="how many entries were deleted")


# --- calls ------------------------------------------------------------------------------------------------------------


@operation(
    "Remember something",
    "Write a memory entry of the account of the call. Without an account it is the workspace's, which all accounts "
    "see and only an operator writes.",
    effect="adds",
    idempotent=False,
)
async def memory_add(call: Call[MemoryAddArguments], workspace: Workspace) -> MemoryEntryAnswer:
    """Write an entry of the account of the call; without an account, of the workspace.

    Raises:
        Refused: The call has no account, and the caller is not an operator.
        InvalidArgument: The workspace has no memory, or an argument is invalid.
    """
    given, account, memory = call.given, call.caller.account, workspace.memory
    _check_writer(call, account)
    entry = await memory.add(
        given.text,
        account=account,
        kind=given.kind,
        tags=given.tags,
        classification=given.classification,
        domain=given.domain,
        confidence=given.confidence,
        expires=_time(given.expires),
        untrusted=given.untrusted,
        # The keys of one account and those of host code name no entry of another account.
        key=None if given.key is None else canonical_json(["call", account, given.key]),
    )
    return MemoryEntryAnswer(entry=_record(call, entry))


@operation("List entries", "A page of the memory entries of the account and of the workspace.")
async def memory_list(call: Call[MemoryListArguments], workspace: Workspace) -> MemoryListAnswer:
    """Return a page of the entries of the account and of the workspace.

    Raises:
        UnknownEntry: The caller sees no entry with the id in `before`.
        InvalidArgument: The workspace has no memory.
    """
    given, memory = call.given, workspace.memory
    found = await memory.list(
        account=call.caller.account,
        kind=given.kind,
        tags=given.tags,
        limit=given.limit,
        before=None if given.before is None else await _seen(call, memory, given.before),
        replaced=given.replaced,
    )
    return MemoryListAnswer(entries=[_record(call, entry) for entry in found])


@operation(
    "Search entries",
    "The memory entries of the account and of the workspace that fit a text best, as a turn would recall them.",
)
async def memory_search(call: Call[MemorySearchArguments], workspace: Workspace) -> MemorySearchAnswer:
    """Return the entries that fit a text best.

    Raises:
        InvalidArgument: The workspace has no memory.
    """
    given = call.given
    found = await workspace.memory.search(given.text, account=call.caller.account, limit=given.limit)
    records = [FoundRecord(**_record(call, entry).model_dump(), score=score) for entry, score in found]
    return MemorySearchAnswer(entries=records)


@operation("Show an entry", "One memory entry.")
async def memory_show(call: Call[MemoryShowArguments], workspace: Workspace) -> MemoryEntryAnswer:
    """Return one entry.

    Raises:
        UnknownEntry: The caller sees no entry with this id.
        InvalidArgument: The workspace has no memory.
    """
    return MemoryEntryAnswer(entry=_record(call, await _seen(call, workspace.memory, call.given.entry)))


@operation(
    "Edit an entry",
    "Change a memory entry. With `version`, only if it was not changed meanwhile.",
    effect="changes",
    idempotent=False,
)
async def memory_edit(call: Call[MemoryEditArguments], workspace: Workspace) -> MemoryEntryAnswer:
    """Change an entry.

    Raises:
        UnknownEntry: The caller sees no entry with this id.
        Refused: It is the workspace's, and the caller is not an operator.
        EntryChanged: It has another version by now.
        InvalidArgument: The workspace has no memory, or an argument is invalid.
    """
    given, memory = call.given, workspace.memory
    _check_writer(call, (await _seen(call, memory, given.entry)).account)
    cleared = given.expires is None and "expires" in given.model_fields_set
    entry = await memory.edit(
        given.entry,
        given.text,
        tags=given.tags,
        expires="never" if cleared else _time(given.expires),
        version=given.version,
        account=call.caller.account,
    )
    return MemoryEntryAnswer(entry=_record(call, entry))


@operation(
    "Forget entries",
    "Delete memory entries, all or none, so that the database holds nothing of them.",
    effect="changes",
)
async def memory_forget(call: Call[MemoryForgetArguments], workspace: Workspace) -> MemoryForgetAnswer:
    """Delete entries, all or none.

    Raises:
        UnknownEntry: The caller does not see one of them.
        Refused: One is the workspace's, and the caller is not an operator.
        InvalidArgument: The workspace has no memory.
    """
    memory = workspace.memory
    for entry_id in call.given.entries:
        _check_writer(call, (await _seen(call, memory, entry_id)).account)
    return MemoryForgetAnswer(forgotten=await memory.forget(*call.given.entries, account=call.caller.account))


@operation(
    "Distil a thread",
    "Let the agent's model note, as memory entries, what later conversations should know of a thread. Only turns "
    "that are over and were not distilled yet are read. Only an operator can call it.",
    who="operator",
    effect="adds",
)
async def memory_distil(call: Call[MemoryDistilArguments], workspace: Workspace) -> MemoryDistilAnswer:
    """Let the model note what later conversations should know of a thread.

    Raises:
        InvalidArgument: The workspace has no memory, or the thread has no turn.
        ThreadBusy: A turn of the thread runs.
        HostError: The model failed.
    """
    made = await workspace.memory.distil(call.given.thread)
    return MemoryDistilAnswer(entries=[_record(call, entry) for entry in made])


async def _seen(call: Call[Any], memory: WorkspaceMemory, entry_id: str) -> Entry:
    """The entry with an id. One of another account is refused as if there were none."""
    entry = await memory.get(entry_id, account=call.caller.account)
    if entry is None:
        raise unknown_entry(entry_id)
    return entry


def _check_writer(call: Call[Any], account: str | None) -> None:
    """Refuse to write an entry of this account, or of the workspace."""
    if account is None and not call.caller.grant.operator:
        raise Refused(
            "forbidden",
            "only an operator changes the entries of the workspace",
            remedy=f"name an account that the token can speak for, or {OPERATOR_REMEDY}",
        )


def _record(call: Call[Any], entry: Entry) -> EntryRecord:
    fields, thread = entry.to_json(), entry.source.thread
    if thread is not None and not call.caller.grant.allows_thread(thread):
        fields["source"] = {"by": entry.source.by}
    return EntryRecord.model_validate(fields)


def _time(given: str | None) -> datetime | None:
    return None if given is None else datetime.fromisoformat(given)
