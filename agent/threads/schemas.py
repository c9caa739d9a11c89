"""Every table of an agent's database that is the package's own. LangGraph's, of the checkpoints, make themselves."""

from __future__ import annotations

from typing import Final

from ...harness.journal import JOURNAL
from ...harness.limits import USAGE
from ...memory import CONVERSATION, TURNS
from ...memory.turn_log import EVENTS
from ...storage import EPOCHS, Schema

SCHEMAS: Final[tuple[Schema, ...]] = (EPOCHS, CONVERSATION, TURNS, JOURNAL, USAGE, EVENTS)
"""Whoever opens the database opens it with all of them; what copies, checks or scans it takes its tables from here."""
