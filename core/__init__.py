"""What every folder can import: scope, tiers, ids, time.

Modules: `errors`, `events`, `files`, `generation`, `pauses`, `validation`.
"""

from .clock import Clock, SystemClock, utc_text
from .embedder import Embedder
from .events import CaptureKind, Emitter
from .generation import ECHO_RUN, ModelUsage, Purse, summed
from .scope import ROOT, STORED_TIERS, Scope, Tier, check_id
from .validation import canonical_json, digest, new_id

__all__ = [
    "ECHO_RUN",
    "ROOT",
    "STORED_TIERS",
    "CaptureKind",
    "Clock",
    "Embedder",
    "Emitter",
    "ModelUsage",
    "Purse",
    "Scope",
    "SystemClock",
    "Tier",
    "canonical_json",
    "check_id",
    "digest",
    "new_id",
    "summed",
    "utc_text",
]
