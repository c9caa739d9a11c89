"""A skill as its composer hands it over: a prompt, a shape and params. Nothing of the prompt is stored (T6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import InvalidArgument
from ..core.validation import is_text


@dataclass(frozen=True, slots=True)
class Composed:
    """What a skill became when it was composed.

    Attributes:
        prompt: Added to the instructions of the shape's entry Signature for this run. It is not stored.
        shape: The shape that runs.
        params: The shape's params; params given to `run_skill` go over these.
        name: A label for people and the log.
    """

    prompt: str
    shape: str = "subagent"
    params: Mapping[str, Any] = field(default_factory=dict)
    name: str = "skill"

    def __post_init__(self) -> None:
        if not is_text(self.prompt):
            raise InvalidArgument("a composed skill has no prompt", remedy="give it one, or use task() instead")
