"""A worker as data. Its loop is in `graphs`, its Signature in `signatures`."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import FunctionInvalid
from ._function import check_name


@dataclass(frozen=True, slots=True)
class Worker:
    """A language model with instructions of its own, run by name through the `subagent` shape.

    Attributes:
        name: What it is called by, and the name of its entry Signature.
        instructions: Its static instructions. No role changes them.
        description: What it is for, shown to the planner.
    """

    name: str
    instructions: str
    description: str = ""

    def __post_init__(self) -> None:
        check_name("worker", self.name)
        if not isinstance(self.instructions, str) or not self.instructions.strip():
            raise FunctionInvalid(f"the worker {self.name!r} has no instructions", remedy="say what it should do")
