"""Where a thread stands, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from ...core import utc_text
from ...core.events import TurnKind
from ...core.pauses import UnattendedMode
from ...memory import TurnStatus

ThreadStatus = TurnStatus | Literal["cut_off", "forked"]
"""What became of a thread's newest turn. `cut_off` is one whose process ended while it ran; `forked`, none ran yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """Where a thread stands: its newest turn.

    Attributes:
        thread: The thread's id within its workspace.
        title: What `thread.rename` set, else the first words of the first message, 60 characters at most; None where
            nobody has said anything.
        account: On whose behalf the turn runs.
        channel: Where it hangs.
        turn_id: The turn; empty where none has run on the thread since it was branched off.
        kind: Which surface it came from; None where there is none.
        status: `paused` waits for a person. `stopped`, `failed` and `cut_off` can go on, as `paused` can, with
            `resume()`. `running` has an owner. `done`, `cancelled` and `abandoned` are over. `forked` has no turn yet.
        since: When the status was written.
        pauses: How many questions wait for a person.
        answers: How many answers wait to be taken up, where a run that was to do so did not come to it.
        recorded: Whether the turn's events are kept: it was begun with `detach` or with a key, or has gone on with
            `detach`.
        needs: What `resume()` must be given again, since none of it is stored: `role` for a turn that began with a call
            role, `skill` for one that runs a skill. Empty for a turn that cannot be resumed.
        unattended: What the turn does where a person would be asked; None asks them.
        page_key: Where the thread stands in a listing: `agent.threads(before=state.page_key)` goes on behind it.
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
        """Whether `resume()` can go on with the turn."""
        return self.status in ("paused", "stopped", "failed", "cut_off")

    def to_json(self) -> dict[str, Any]:
        """The state as JSON, with the fields that the sidecar gives."""
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
