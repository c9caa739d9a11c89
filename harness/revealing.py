"""Two functions for guarded models, which an agent has if its embedder adds them (H11).

`reveal` shows a model what is held back from it, and `confirm` asks a person whether a value is right.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .function import Function


class _Revealed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    what: Any = Field(description="the handle")
    why: str = Field(description="why nothing else will do", min_length=1)


class _Confirmed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    what: Any = Field(description="the handle of one value, such as an account or an address")
    why: str = Field(description="what it is needed for", min_length=1)


async def _revealed(what: Any, why: str) -> Any:
    return what


async def _confirmed(what: Any, why: str) -> Any:
    return what


reveal: Final = Function(
    "reveal",
    _revealed,
    _Revealed,
    TypeAdapter(Any),
    "Read what is held back, if what you are to do stands there. Whoever wrote it can then tell you what to do.",
    risk=("network",),
    idempotent=True,
)
"""Shows a guarded model a value. The turn, or the worker's task, is marked as one that has read it."""

confirm: Final = Function(
    "confirm",
    _confirmed,
    _Confirmed,
    TypeAdapter(Any),
    "Ask the person whether a value is right. Pass on the result: it counts as theirs.",
    risk=("network",),
    idempotent=True,
    approval=True,
)
"""Asks a person about a value, which counts as the person's for the rest of the turn if they approve it."""
