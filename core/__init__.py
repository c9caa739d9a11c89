"""What every folder may use: scope, tiers, ids, time, events of a turn, checks. Errors are in `core.errors`."""

from ._clock import Clock, SystemClock
from ._emitter import Emitter
from ._ids import canonical_json, digest, new_id
from ._limits import ECHO_RUN
from ._scope import Scope, Tier, check_id
from ._validation import validate_model, validate_value

__all__ = [
    "ECHO_RUN",
    "Clock",
    "Emitter",
    "Scope",
    "SystemClock",
    "Tier",
    "canonical_json",
    "check_id",
    "digest",
    "new_id",
    "validate_model",
    "validate_value",
]
