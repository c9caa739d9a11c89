"""What a thread's turn waits for, and the answers that were typed so far. This module does no input or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ....core.errors import AnswerInvalid, NotAnApprover
from ....core.pauses import Pause, PersonAnswer, may_answer, may_be_always
from ...pauses import is_late
from ..pauses import pause_text, read_answer

STATUS_TEXTS: Final = {
    "paused": "The last turn of this thread has its answers, and was not resumed. /resume resumes it, /cancel ends it.",
    "stopped": "The last turn of this thread was stopped. /resume resumes it, /cancel ends it.",
    "cut_off": "The last turn of this thread was interrupted. /resume resumes it, a new message drops it.",
    "failed": "The last turn of this thread failed. /resume resumes it, a new message drops it.",
    "running": "A turn of this thread runs in another process. /cancel ends it.",
}
"""What a person can do about a thread's last turn, by its status."""

APPROVER_REMEDY: Final = "use /later and let an approver answer, or start the chat with --account, as one of them"
"""The remedy for an account that is not an approver."""


class Waiting:
    """The open pauses of one turn, in the order in which they are answered.

    Args:
        pauses: The pauses; one or more.
        account: The account that answers.
        answers: Earlier answers by pause id; those of other pauses are dropped.

    Attributes:
        pauses: The pauses. Those that only other accounts can answer, and those that have expired, come last.
        answers: The answers by pause id. None is sent yet.
    """

    def __init__(
        self, pauses: Sequence[Pause], account: str | None, answers: Mapping[str, PersonAnswer] | None = None
    ) -> None:
        self._account = account
        self.pauses = tuple(sorted(pauses, key=lambda pause: not self._may_answer(pause)))
        kept = {pause.id for pause in self.pauses if not is_late(pause)}
        self.answers = {key: answer for key, answer in (answers or {}).items() if key in kept}

    @property
    def open(self) -> tuple[Pause, ...]:
        """The pauses without an answer."""
        return tuple(pause for pause in self.pauses if pause.id not in self.answers)

    @property
    def asks(self) -> bool:
        """Whether this account can answer one of the open pauses."""
        return any(map(self._may_answer, self.open))

    @property
    def place(self) -> str:
        """Which answer comes next, for a prompt."""
        return f"answer {len(self.answers) + 1}/{len(self.pauses)}" if len(self.pauses) > 1 else "answer"

    def take(self, text: str) -> Pause:
        """Take `text` as the answer to the next pause, and return that pause.

        Raises:
            NotAnApprover: Only other accounts can answer the open pauses.
            AnswerInvalid: The open pauses have expired.
            InvalidArgument: The text does not answer the pause; the remedy lists the answers.
        """
        pause = self.open[0]
        if is_late(pause):
            raise AnswerInvalid(
                "the pause has expired and accepts no answer",
                remedy="use /resume to resume without an answer; it fails with PauseExpired",
            )
        if not self._may_answer(pause):
            raise NotAnApprover(
                f"the call of {pause.function!r} waits for an approver: {', '.join(pause.approvers)}",
                remedy=APPROVER_REMEDY,
            )
        self.answers[pause.id] = read_answer(pause, text)
        return pause

    def describe(self) -> str:
        """All open pauses, for a person."""
        parts = [pause_text(pause) for pause in self.open]
        if self.answers:
            count = "1 answer is" if len(self.answers) == 1 else f"{len(self.answers)} answers are"
            parts.append(f"{count} given and not sent; /resume sends the answers so far")
        return "\n\n".join(parts)

    def _may_answer(self, pause: Pause) -> bool:
        return not is_late(pause) and may_answer(self._account, pause.approvers)


def answer_keys(pause: Pause) -> dict[str, str]:
    """The keys that answer an approval when pressed with Alt, each with its answer. Other pauses have none.

    A letter without Alt does not answer: what a person types ahead could approve a call that they have not seen.
    """
    if pause.kind != "approval" or is_late(pause):
        return {}
    return {"y": "yes", "n": "no"} | ({"a": "always"} if may_be_always(pause) else {})


__all__ = ["APPROVER_REMEDY", "STATUS_TEXTS", "Waiting", "answer_keys"]
