"""Ids and canonical JSON: what makes two equal values equal bytes."""

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


# To make one for each text takes as long as the text.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return `value` as JSON with sorted keys and no blanks, so that equal values give equal text.

    Raises:
        TypeError: Something in it is not JSON.
        ValueError: It holds a number that JSON has not (NaN, infinity).
    """
    return _ENCODER.encode(value)


def digest(value: Any, *, length: int = 32, text: str | None = None) -> str:
    """Return `length` hex digits that stand for a JSON value. Not keyed: never digest a role.

    Args:
        value: The value.
        length: How many digits, 64 at most.
        text: Its canonical JSON, where that is there already.
    """
    kept = canonical_json(value) if text is None else text
    return hashlib.blake2b(kept.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()[:length]
