"""Who speaks in a conversation that was handed to a member of the workspace, and what the member sees of it (A21)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ..core.marks import readers_in
from ..harness.gate.labels import Label
from ..memory import Message
from ..memory.conversation import SPEAKER
from ..memory.entries import Reader

AFTER: Final = "shown_after"
"""In the body of the message that begins a turn: the depth of the last message that its speaker is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """The member that speaks in a turn of a person's conversation. Its worker has its soul, its tools and its ceiling.

    Attributes:
        member: Its id, which is also that of its worker.
        reader: What it may know: the clearance of the member.
        after: Messages up to this depth are not shown to it; -1 shows all that its clearance admits.
    """

    member: str
    reader: Reader
    after: int = -1

    def admits(self, marks: Iterable[str]) -> bool:
        """Whether it may see a text with these marks."""
        marks = frozenset(marks)
        return Label(readers=readers_in(marks)).may_reach([self.member]) and self.reader.admits(marks)

    def sees(self, message: Message) -> bool:
        """Whether it is shown a message of an earlier turn: what it has said itself, and else what it may see."""
        if message.depth <= self.after:
            return False
        return message.body.get(SPEAKER) == self.member or self.admits(message.body.get("untrusted", ()))

    @property
    def body(self) -> dict[str, Any]:
        """What the message that begins a turn of it has besides."""
        return {SPEAKER: self.member, AFTER: self.after}
