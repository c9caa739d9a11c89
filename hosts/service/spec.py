"""What is said of an operation, or of a tool of a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What is said of an operation, or of a tool of a server.

    Attributes:
        title: Its display name.
        arguments: The model of its arguments.
        answer: The model of its answer.
        description: What it does, for people and models.
        effect: `reads` changes nothing, `adds` only adds, `changes` can replace, remove or end things.
        idempotent: Whether it is idempotent.
        open_world: Whether it runs an agent, whose tools can reach anything.
    """

    title: str
    arguments: type[BaseModel]
    answer: type[BaseModel]
    description: str
    effect: Literal["reads", "adds", "changes"] = "reads"
    idempotent: bool = True
    open_world: bool = False
