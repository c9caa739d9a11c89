"""Memory entries: what an agent knows across threads (M1 to M5). No model and no role is used here."""

from .entry import Classification, Draft, Entry, EntryKind, Reader, Source
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
    "Reader",
    "Source",
    "remove_of_thread",
]
