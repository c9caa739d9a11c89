"""A composed skill: a prompt, a shape and params. The prompt is not stored (T6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import InvalidArgument
from ..core.validation import is_text


@dataclass(frozen=True, slots=True)
class Composed:
    """The result of composing a skill.

    Attributes:
        prompt: Added to the instructions of the shape's entry Signature for this run. It is not stored.
        shape: The shape that runs.
        params: The shape's params; params passed to `run_skill` override these.
        name: A label for people and the log.
    """

    prompt: str
    shape: str = "subagent"
    params: Mapping[str, Any] = field(default_factory=dict)
    name: str = "skill"

    def __post_init__(self) -> None:
        if not is_text(self.prompt):
            raise InvalidArgument("a composed skill must have a prompt", remedy="pass one, or use task() instead")
