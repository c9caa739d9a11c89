"""Somebody in the process who can answer approvals at once. Who answers later does it by `resume()`."""

from __future__ import annotations

from typing import Protocol

from ...core.pauses import Approve, Pause, Reject


class Approver(Protocol):
    """Answers approvals in the process: a dialog of the host's, a rule of its own."""

    async def __call__(self, pause: Pause, /) -> Approve | Reject | None:
        """Answer, or give None: then the turn pauses, and a person answers later.

        Args:
            pause: What is asked. Its `id` is the call's; `arguments` are what would run.
        """
        ...


__all__ = ["Approver"]
