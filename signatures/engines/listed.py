"""The list of models that dspy bundles, with prices and abilities.

It is read without network access; dspy's own reader would fetch a newer one.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import Any


def listed_models() -> dict[str, dict[str, Any]]:
    """The entries of the list, by its own model names; empty if dspy no longer has such a list."""
    try:
        packed = files("dspy.clients.model_metadata").joinpath("snapshot.json.gz").read_bytes()
        entries = json.loads(gzip.decompress(packed))
    except (ImportError, OSError, ValueError):
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


__all__ = ["listed_models"]
