"""What a body can ask for, as values. What becomes of it is decided in `_drive`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ...core import canonical_json
from ...core.pauses import PauseKind
from ._stored import CallKind


class Suspended(Enum):
    """What a call gives instead of a result while a person is asked, or the turn is to stop."""

    SUSPENDED = "suspended"


SUSPENDED: Final = Suspended.SUSPENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a person is asked before a step is done.

    Attributes:
        kind: Whether it is leave for a call or a question.
        question: What is asked.
        options: What can be answered.
        schema: The JSON Schema of the answer.
        seconds: How long an answer is waited for; None is for ever.
    """

    kind: PauseKind
    question: str | None = None
    options: tuple[str, ...] | None = None
    schema: dict[str, Any] | None = None
    seconds: float | None = None

    def json(self, problem: str | None = None) -> str:
        """As the journal keeps it."""
        given = {"question": self.question, "options": self.options, "schema": self.schema, "problem": problem}
        return canonical_json({"kind": self.kind} | {name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that a body asks for and that is recorded: a call, a task, a model's answer, a question.

    Attributes:
        id: Its path id.
        parent: The path id of who asks for it.
        name: What it is called.
        kind: What it is.
        input: Its params as JSON.
        body: Does it; gives JSON, or `SUSPENDED`. For a question it reads the answer, and raises if that does not fit.
        role: Stands for the role it gets; opaque here.
        ask: What a person is asked before.
        once: Whether doing it twice would be doing it once too often.
        version: Stands for what its params and its result are declared as.
        site: Where its body makes it, from `Frame.child`; None where nothing could be equal to it.
    """

    id: str
    parent: str
    name: str
    kind: CallKind
    input: Any
    body: Callable[[Any], Awaitable[Any]]
    role: str | None = None
    ask: Ask | None = None
    once: bool = False
    version: str | None = None
    site: str | None = None
