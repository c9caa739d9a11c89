"""Ids, digests and canonical JSON, which gives equal values equal bytes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any


def new_id(prefix: str) -> str:
    """Return `prefix_` and 32 hex digits that sort by creation time in milliseconds (the layout of UUID version 7)."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return f"{prefix}_{value:032x}"


# Shared, because making an encoder takes as long as encoding a text.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return `value` as JSON with sorted keys and no spaces, so that equal values give equal text.

    Raises:
        TypeError: It contains something that is not JSON.
        ValueError: It contains a number that JSON does not have (NaN, infinity).
    """
    return _ENCODER.encode(value)


def digest(value: Any, *, length: int = 32, text: str | None = None) -> str:
    """Return the first `length` hex digits of a JSON value's digest. It has no key, so never digest a role with it.

    Args:
        value: The value.
        length: How many digits, 64 at most.
        text: Its canonical JSON, if the caller has it already.
    """
    kept = canonical_json(value) if text is None else text
    return hashlib.blake2b(kept.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()[:length]
