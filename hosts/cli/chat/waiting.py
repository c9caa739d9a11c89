"""What the turn of a thread waits for, and what was answered so far; and where a thread stands, in words.

It reads and shows nothing. Answers are sent together: `turns` does, once there is one to each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ....core.errors import AnswerInvalid, NotAnApprover
from ....core.pauses import Pause, PersonAnswer, may_answer
from ...pauses import is_late
from .._pauses import pause_text, read_answer

if TYPE_CHECKING:
    from ....agent import ThreadState

_STANDS: Final = {
    "paused": "The last turn of this thread has its answers, and has not gone on. "
    "/resume goes on with it, /cancel ends it.",
    "stopped": "The last turn of this thread was stopped. /resume goes on with it, /cancel ends it.",
    "cut_off": "The last turn of this thread was cut off. /resume goes on with it, a new message drops it.",
    "failed": "The last turn of this thread failed. /resume goes on with it, a new message drops it.",
    "running": "A turn of this thread is under way in another process. /cancel ends it.",
}


OTHERS: Final = "leave it to them by /later, or begin the chat with --account, as one of them"
"""What a person does who may not answer."""


class Waiting:
    """The open pauses of one turn, in the order in which they are answered.

    Args:
        pauses: What waits; one or more.
        answers: What was answered before, by pause id; of other pauses it is dropped.
        account: Who answers.

    Attributes:
        pauses: What waits; what only others may answer comes last, and what has expired.
        answers: What was answered, by pause id; nothing of it is sent yet.
    """

    def __init__(
        self, pauses: Sequence[Pause], answers: Mapping[str, PersonAnswer] | None = None, account: str | None = None
    ) -> None:
        self._account = account
        self.pauses = tuple(sorted(pauses, key=lambda pause: not self._may_answer(pause)))
        kept = {pause.id for pause in self.pauses if not is_late(pause)}
        self.answers = {key: answer for key, answer in (answers or {}).items() if key in kept}

    @property
    def open(self) -> tuple[Pause, ...]:
        """What is not answered."""
        return tuple(pause for pause in self.pauses if pause.id not in self.answers)

    @property
    def asks(self) -> bool:
        """Whether there is something left that this account may answer."""
        return any(map(self._may_answer, self.open))

    @property
    def place(self) -> str:
        """Which answer comes next, for a prompt."""
        return f"answer {len(self.answers) + 1}/{len(self.pauses)}" if len(self.pauses) > 1 else "answer"

    def take(self, text: str) -> Pause:
        """Take `text` as the answer to the next pause and give that.

        Raises:
            NotAnApprover: Only others may answer what is left.
            AnswerInvalid: What is left has expired.
            InvalidArgument: It is no answer to it; the remedy says what is one.
        """
        pause = self.open[0]
        if is_late(pause):
            raise AnswerInvalid(
                "what waits has expired, and takes no answer any more",
                remedy="/resume goes on without it; it fails with PauseExpired",
            )
        if not self._may_answer(pause):
            raise NotAnApprover(
                f"the call of {pause.function!r} waits for somebody else: {', '.join(pause.approvers)}", remedy=OTHERS
            )
        self.answers[pause.id] = read_answer(pause, text)
        return pause

    def told(self) -> str:
        """All that waits, for a person."""
        shown = [pause_text(pause) for pause in self.open]
        if self.answers:
            count = "1 answer is" if len(self.answers) == 1 else f"{len(self.answers)} answers are"
            shown.append(f"{count} given and not sent; /resume sends what there is")
        return "\n\n".join(shown)

    def _may_answer(self, pause: Pause) -> bool:
        return not is_late(pause) and may_answer(self._account, pause.approvers)


def standing(state: ThreadState | None) -> str | None:
    """Say what a person can do about a thread's last turn; None where there is nothing."""
    return None if state is None else _STANDS.get(state.status)


__all__ = ["OTHERS", "Waiting", "standing"]
