"""The approver: answers approval requests at once, in the process. Later answers arrive through `resume()`."""

from __future__ import annotations

from typing import Protocol

from ...core.pauses import Approve, Pause, Reject


class Approver(Protocol):
    """Answers approval requests in the process, such as with a dialog of the host."""

    async def __call__(self, pause: Pause, /) -> Approve | Reject | None:
        """Answer an approval request, or return None to pause the turn until a person answers.

        Args:
            pause: The approval request. Its `id` is the id of the call, and the call would run with its `arguments`.
        """
        ...


__all__ = ["Approver"]
