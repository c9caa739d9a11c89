"""The state of a thread, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from ...core import utc_text
from ...core.events import TurnKind
from ...core.pauses import UnattendedMode
from ...memory import TurnStatus

ThreadStatus = TurnStatus | Literal["cut_off", "forked"]
"""The status of a thread's newest turn. `cut_off` was interrupted with its process; `forked` has had no turn yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """The state of a thread and its newest turn.

    Attributes:
        thread: The thread's id within its workspace.
        title: The title that `thread.rename` set, else the first words of the first message, 60 characters at most;
            None if the thread has no message.
        account: The account that the turn runs for.
        channel: The channel that the turn runs in.
        turn_id: The turn; empty if none has run on the thread since it was forked.
        kind: The surface that the turn came from; None without a turn.
        status: `paused` waits for a person. `stopped`, `failed` and `cut_off` can be resumed, as `paused` can.
            `running` has an owner. `done`, `cancelled` and `abandoned` are over. `forked` has no turn yet.
        since: When the status was written.
        pauses: How many pauses wait for a person.
        answers: How many answers no run has taken up yet.
        recorded: Whether the turn's events are stored: it was begun with `detach` or with a key, or was resumed with
            `detach`.
        needs: What must be passed to `resume()` again, since it is not stored: `role` for a turn that began with a call
            role, `skill` for one that runs a skill. Empty for a turn that cannot be resumed.
        unattended: What the turn does if a person would be asked; None asks them.
        page_key: The position of the thread in a listing: `agent.threads(before=state.page_key)` gives the next page.
    """

    thread: str
    title: str | None = None
    account: str | None = None
    channel: str | None = None
    turn_id: str = ""
    kind: TurnKind | None = None
    status: ThreadStatus
    since: datetime
    pauses: int = 0
    answers: int = 0
    recorded: bool = False
    needs: tuple[Literal["role", "skill"], ...] = ()
    unattended: UnattendedMode | None = None
    page_key: str = ""

    @property
    def resumable(self) -> bool:
        """Whether `resume()` can continue the turn."""
        return self.status in ("paused", "stopped", "failed", "cut_off")

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, with the fields that the sidecar uses."""
        return {
            "thread": self.thread,
            "title": self.title,
            "account": self.account,
            "channel": self.channel,
            "turn_id": self.turn_id or None,
            "kind": self.kind,
            "status": self.status,
            "since": utc_text(self.since),
            "pauses": self.pauses,
            "answers": self.answers,
            "resumable": self.resumable,
            "page_key": self.page_key,
        }
