"""Memory entries: what an agent knows across threads (M1 to M5). No model and no role is used here."""

from .entry import Classification, Draft, Entry, EntryKind, Reader, Source
from .kinds import Episode, Fact, Insight
from .recall import MemorySource, Passage, Recall, as_passages
from .store import ENTRIES, Change, Entries, EntryFilter, remove_of_thread

__all__ = [
    "ENTRIES",
    "Change",
    "Classification",
    "Draft",
    "Entries",
    "Entry",
    "EntryFilter",
    "EntryKind",
    "Episode",
    "Fact",
    "Insight",
    "MemorySource",
    "Passage",
    "Reader",
    "Recall",
    "Source",
    "as_passages",
    "remove_of_thread",
]
