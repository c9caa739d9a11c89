"""All tables of an agent's database that this package owns. LangGraph creates its own tables for checkpoints."""

from __future__ import annotations

from typing import Final

from ...harness.journal import JOURNAL
from ...harness.limits import USAGE
from ...memory import CONVERSATION, TURNS
from ...memory.turn_log import EVENTS
from ...storage import EPOCHS, Schema

SCHEMAS: Final[tuple[Schema, ...]] = (EPOCHS, CONVERSATION, TURNS, JOURNAL, USAGE, EVENTS)
"""Every opening of the database uses all of them. Code that copies, checks or scans it takes its tables from here."""
