"""What docs/guides/steering.md says of messages beside a turn, in plain code: who reads them, and in what order.

It is written from the documentation and imports nothing of the package, so that both can only be wrong together by
being wrong in the same way.
"""

from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["thinking", "acting", "paused", "failed"]
"""What an open turn does: `failed` is one that failed with an error that can pass."""


@dataclass
class Open:
    """An open turn.

    Attributes:
        text: The message that began it.
        by_inbox: Whether a message of the inbox began it and nobody waits for it, so that it continues when the agent
            opens again.
        phase: What it does.
        doomed: Whether it ends after its calls under way.
    """

    text: str
    by_inbox: bool
    phase: Phase = "thinking"
    doomed: bool = False


@dataclass
class Rules:
    """One thread.

    Attributes:
        log: What was said: `message` began a turn, a turn read a `word`, `answer` ended one.
        steers: Steering that no turn has read.
        queue: What is queued.
        turn: The open turn.
        waiting: A message that interrupted the turn, and begins the next one itself.
    """

    log: list[tuple[str, str]] = field(default_factory=list)
    steers: list[str] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    turn: Open | None = None
    waiting: str | None = None

    @property
    def phase(self) -> str:
        """What the thread does."""
        return "idle" if self.turn is None else self.turn.phase

    @property
    def unread(self) -> list[str]:
        """What waits, in the order in which it is read."""
        return [*self.steers, *self.queue]

    # --- what people do ---------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """A message where no turn runs or waits."""
        self._begin(text, by_inbox=False)

    def stop_and_say(self, text: str) -> None:
        """A message that interrupts."""
        if self.phase in ("idle", "failed"):
            self.say(text)
            return
        self.waiting = text
        self._interrupt()

    def steer(self, text: str, *, begin: bool) -> bool:
        """Steering; False if it is refused."""
        nothing = self.phase in ("idle", "failed")
        if nothing and not begin:
            return False
        self.steers.append(text)
        self._next()
        return True

    def put(self, text: str, *, interrupt: bool) -> None:
        """A queued message."""
        self.queue.insert(0 if interrupt else len(self.queue), text)
        if interrupt and self.phase != "failed":
            self._interrupt()
        self._next()

    def withdraw(self, text: str) -> None:
        """Take back what waits."""
        (self.steers if text in self.steers else self.queue).remove(text)

    def cancel(self) -> None:
        """Cancel the turn, at once."""
        self._end()

    def approve(self) -> None:
        """Approve the call that a turn waits for, which ends at once, and wait for the turn."""
        self.resume()

    def resume(self) -> None:
        """Try again after an error that can pass, and wait for the turn."""
        assert self.turn is not None
        self.turn.by_inbox = False
        self._think()

    def edit(self, text: str) -> None:
        """Edit the newest message that began a turn."""
        newest = max(place for place, (kind, _) in enumerate(self.log) if kind == "message")
        del self.log[newest:]
        self._begin(text, by_inbox=False)

    def reopen(self, *, began: bool) -> None:
        """Close the agent, and open it again.

        Args:
            began: Whether the message that interrupts began its turn as the agent closed, which ended that turn.
        """
        if began:
            self._end()
        self.waiting = None
        if self.turn is None or self.turn.phase in ("paused", "failed"):
            return
        if not self.turn.by_inbox or self.turn.doomed:
            self._end()
        elif self.turn.phase == "thinking":
            self._think()

    # --- what the model and its tools do -----------------------------------------------------------------------------

    def decide(self, what: str) -> None:
        """The model's thought ends."""
        assert self.turn is not None
        match what:
            case "call":
                self.turn.phase = "acting"
            case "ask":
                self.turn.phase = "paused"
            case "outage":
                self.turn.phase = "failed"
            case "answer":
                self.log.append(("answer", f"re {self.turn.text}"))
                self._end()
            case _:  # nothing usable, and so again
                self._think()
                self._end()

    def finish(self) -> None:
        """The call under way ends."""
        assert self.turn is not None
        if self.turn.doomed:
            self._end()
        else:
            self._think()

    # --- what follows ------------------------------------------------------------------------------------------------

    def _begin(self, text: str, *, by_inbox: bool) -> None:
        self.turn = Open(text, by_inbox)
        self.log.append(("message", text))
        self._think()

    def _think(self) -> None:
        assert self.turn is not None
        self.turn.phase = "thinking"
        self.log += [("word", text) for text in self.steers]
        self.steers.clear()

    def _interrupt(self) -> None:
        if self.phase == "acting":
            assert self.turn is not None
            self.turn.doomed = True
        elif self.turn is not None:
            self._end()

    def _end(self) -> None:
        self.turn = None
        if self.waiting is not None:
            text, self.waiting = self.waiting, None
            self._begin(text, by_inbox=False)
        self._next()

    def _next(self) -> None:
        if self.turn is None and self.unread:
            self._begin((self.steers or self.queue).pop(0), by_inbox=True)
