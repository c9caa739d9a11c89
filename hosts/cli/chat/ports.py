"""What the loop of a chat needs of its two ends: where messages come from, and what shows the answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from ....core.errors import WorldAgentError
from ....core.events import Event
from .._output import Output

if TYPE_CHECKING:
    from ....agent import Turn
    from ....core.pauses import Pause
    from .session import Talk
    from .waiting import Waiting


class Interrupted(Exception):
    """Ctrl-C on an empty prompt.

    Args:
        touched: Whether something was typed since the prompt appeared.
    """

    def __init__(self, touched: bool = False) -> None:
        super().__init__()
        self.touched = touched


class Source(Protocol):
    """Where messages come from."""

    @property
    def early(self) -> bool:
        """Whether it can be read, and written beside, before the agent is loaded."""
        ...

    @property
    def trusted(self) -> bool:
        """Whether a person types what it gives; a line that a program pipes in may name no file."""
        ...

    async def read(self, prompt: Callable[[], str], default: str) -> str:
        """The next message.

        Args:
            prompt: Gives what the prompt says; it may change while it is read.
            default: What stands there to be edited.

        Raises:
            EOFError: There is none.
            Interrupted: Ctrl-C.
            WorldAgentError: It is no text.
        """
        ...

    def interrupt(self) -> None:
        """End the reading that is under way with `Interrupted`."""
        ...

    def opened(self, talk: Talk) -> None:
        """The agent is loaded, and with it it is known where what is typed is kept."""
        ...

    async def beside(self, show: Callable[[], None]) -> None:
        """Call `show` so that what it prints does not run into what is being typed."""
        ...


class Renderer(Protocol):
    """Shows what comes of it."""

    @property
    def interactive(self) -> bool:
        """Whether a person looks on."""
        ...

    @property
    def notes(self) -> Output:
        """Where notes go while the agent loads."""
        ...

    def begin(self, talk: Talk) -> None:
        """The chat begins; the agent is not loaded yet."""
        ...

    def opened(self, talk: Talk, trouble: WorldAgentError | None) -> None:
        """The agent is loaded; `trouble` says why the role host cannot be reached."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """A message or a command is under way."""
        ...

    def event(self, event: Event) -> None:
        """One event of a turn."""
        ...

    def ended(self, turn: Turn) -> None:
        """A turn has ended, or waits; the lines that follow answer what it waits for."""
        ...

    def waits(self, waiting: Waiting) -> None:
        """A turn that was begun before waits, and the lines that follow answer it."""
        ...

    def taken(self, pause: Pause, waiting: Waiting) -> None:
        """An answer to `pause` was taken, and another is asked for."""
        ...

    def told(self, command: str, text: str) -> None:
        """What a command found."""
        ...

    def error(self, error: WorldAgentError) -> None:
        """Why nothing came of it."""
        ...

    def cancelled(self) -> None:
        """The person has cancelled what was under way."""
        ...

    def note(self, text: str) -> None:
        """Something beside."""
        ...

    def hung_up(self) -> None:
        """The terminal is gone: show nothing any more."""
        ...


__all__ = ["Interrupted", "Renderer", "Source"]
