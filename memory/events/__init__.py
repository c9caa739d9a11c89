"""The events of recorded turns, and the keys that turns were begun with. Who writes and follows them is `agent`'s."""

from ._log import EVENTS, EventLog, EventPage, Lines, RecordedTurn

__all__ = ["EVENTS", "EventLog", "EventPage", "Lines", "RecordedTurn"]
