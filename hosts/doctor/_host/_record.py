"""What a check remembers of a host: values only. `_kit` fills them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ._replies import Reply


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call that was answered."""

    arguments: dict[str, Any] = field(repr=False)
    reply: Reply


@dataclass(slots=True)
class Heard:
    """What a host gave in one revision: its tools, and its answer to a question that each revision is asked."""

    tools: dict[str, Any] = field(default_factory=dict)
    roles: Any = field(default=None, repr=False)


@dataclass(slots=True)
class Life:
    """What a child of our own did, for hosts over stdio.

    Attributes:
        messages: How many messages it wrote to its standard output.
        noise: How many other lines.
        ended: Whether it ended when its input did.
        left: Whether processes that it started were still there.
    """

    messages: int = 0
    noise: int = 0
    ended: bool = False
    left: bool = False


__all__ = ["Exchange", "Heard", "Life"]
