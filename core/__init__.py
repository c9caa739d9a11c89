"""What every folder can import: scope, tiers, ids, time.

Modules: `errors`, `events`, `files`, `generation`, `pauses`, `validation`.
"""

from .clock import Clock, SystemClock, utc_text
from .emitter import CaptureKind, Emitter
from .ids import canonical_json, digest, new_id
from .limits import ECHO_RUN
from .scope import STORED_TIERS, Scope, Tier, check_id
from .usage import ModelUsage, summed

__all__ = [
    "ECHO_RUN",
    "STORED_TIERS",
    "CaptureKind",
    "Clock",
    "Emitter",
    "ModelUsage",
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
