"""The list of models that dspy brings along, with prices and abilities.

It is read here without the network; dspy's own reader would fetch a newer one.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from typing import Any


def listed_models() -> dict[str, dict[str, Any]]:
    """What the list says, by the models' names there; empty where dspy has no such list any more."""
    try:
        packed = files("dspy.clients.model_metadata").joinpath("snapshot.json.gz").read_bytes()
        entries = json.loads(gzip.decompress(packed))
    except (ImportError, OSError, ValueError):
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


__all__ = ["listed_models"]
