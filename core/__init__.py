"""What every folder may use: scope, tiers, ids, time.

Modules: `errors`, `events`, `files`, `generation`, `pauses`, `validation`.
"""

from ._clock import Clock, SystemClock, utc_text
from ._emitter import CaptureKind, Emitter
from ._ids import canonical_json, digest, new_id
from ._limits import ECHO_RUN
from ._scope import STORED_TIERS, Scope, Tier, check_id
from ._usage import ModelUsage, summed

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
