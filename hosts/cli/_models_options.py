"""The options of `models`."""

from __future__ import annotations

from dataclasses import dataclass

from ._options import JsonResult


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """What `models` takes."""

    json: JsonResult = False


__all__ = ["ModelsOptions"]
