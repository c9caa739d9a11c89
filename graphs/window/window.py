"""One step of a conversation: what the model sees of a thread, and how to shorten it. The log loses nothing."""

from __future__ import annotations

from typing import Self

from ..attached import texts_of
from ..context import TurnContext
from .summarise import summarise
from .view import Bounds, Entry, View, size, view_of


class Window:
    """What the model sees in one round.

    Attributes:
        head: The last message of the thread: the given head, or the summary that was appended after it.
        message: The fields of this turn's message.
        history: The messages before it.
    """

    def __init__(self, turn: TurnContext, head: str, view: View, own: int) -> None:
        self.head = head
        self._turn = turn
        self._own = own
        self._asked = view.asked.id
        self._tried = False
        self._fixed: list[Entry] = []
        self._recent: list[Entry] = []
        options = turn.services.options
        self._bounds = Bounds(messages=options.history_limit, characters=options.history_characters)
        self._show(view)

    @classmethod
    async def open(cls, turn: TurnContext, head: str, asked: str, *, first: bool, own: int) -> Self:
        """Read what the model sees, and make a summary if that is too much.

        Args:
            turn: The turn.
            head: The last message of its thread.
            asked: The id of the turn's message.
            first: Whether this is the turn's first round. Later rounds add nothing that could be summarised.
            own: How many characters the turn's own steps have.
        """
        window = cls(turn, head, await view_of(turn, head, asked), own)
        if first and window._view.over(window._bounds):
            await window._summarise(window._bounds)
        return window

    def continue_at(self, head: str, own: int) -> None:
        """Show the same at a later step of the turn.

        Args:
            head: The last message of its thread now.
            own: How many characters the turn's own steps have now.
        """
        self.head, self._own = head, own
        self._show(self._view)

    async def narrow(self) -> bool:
        """Show less, because the model's context is too short; False if nothing more can be left out."""
        if not self._tried and self._view.follows:
            shorter = Bounds(messages=self._bounds.messages, characters=size(self.history) // 2)
            if await self._summarise(shorter):
                return True
        if self._recent:
            self._recent = _newer_half(self._recent)
        elif self._fixed:
            self._fixed = []
        else:
            return False
        return True

    @property
    def history(self) -> list[Entry]:
        """The messages before this turn's message."""
        return [*self._fixed, *self._recent]

    async def _summarise(self, bounds: Bounds) -> bool:
        self._tried = True
        if not self._turn.services.options.summaries:
            return False
        made = await summarise(self._turn, self._view, self.head, bounds)
        if made is None:
            return False
        self.head, self._bounds = made, bounds
        self._show(await view_of(self._turn, made, self._asked))
        return True

    def _show(self, view: View) -> None:
        self._view = view
        self._turn.gate.mark(*view.untrusted)
        most = self._bounds.characters
        self._fixed = view.fixed(most)
        self.message = view.message()
        recent = view.before()
        if most is not None:
            texts = texts_of(most)
            recent = _newest(recent, most - size(self._fixed) - self._own, texts)
        self._recent = recent


def _newer_half(past: list[Entry]) -> list[Entry]:
    return past[len(past) // 2 + 1 :] if len(past) > 1 else []


def _newest(past: list[Entry], most: int, texts: int) -> list[Entry]:
    left = most
    for at in range(len(past) - 1, -1, -1):
        left -= size([past[at]], texts=texts)
        if left < 0:
            return past[at + 1 :]
    return past
