"""One step of a conversation: what the model sees of a thread, and how to shorten it. The log loses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Self

from langgraph.types import interrupt

from ..core import digest
from ..core.errors import ContextExceeded, OutputInvalid, WorldAgentError
from ..core.events import HistorySummarised, SummaryFailed
from ..harness.journal import ABOUT_THE_TURN, SUSPENDED, Step
from ..memory import Draft, Message
from ..memory.examples import Examples
from ..signatures.summaries import SUMMARISE
from .attached import texts_of
from .context import AGENT, STOPPED, TurnContext
from .history import (
    SHARE,
    Bounds,
    Entry,
    Group,
    Holder,
    View,
    as_history,
    kept_of,
    said_by,
    size,
    uncovered,
    untrusted_in,
    view_of,
    word_for_word,
)

MAX_MODEL_CALLS: Final = 8  # the limit of model calls for one summary
MAX_LOOKBACK_MESSAGES: Final = 2000  # how many messages a summary looks back; it matters for threads that never had one
DEFAULT_CONTEXT_CHARACTERS: Final = 48_000  # characters that are summarised at once if the model's context is unknown
SUMMARY_DIVISOR: Final = 8  # the divisor: a summary can take one eighth of the characters
CHARACTERS_PER_WORD: Final = 7  # characters of a word and its space
COOLDOWN_SECONDS: Final = 300.0  # seconds after a failure in which no summary of the thread is tried
_LEAST: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The input of a summary.

    Attributes:
        lines: The texts to summarise, oldest first, each with its message; None is the summary before.
        first: The first message that it replaces, without those of the summary before.
        last: The last message that it replaces.
        results: The results that stay word for word.
    """

    lines: tuple[tuple[Message | None, str], ...]
    first: Message
    last: Message
    results: tuple[str, ...]


async def summarise(turn: TurnContext, view: View, head: str, bounds: Bounds) -> str | None:
    """Append a summary after `head`.

    Args:
        turn: The turn that makes it.
        view: The messages that the turn has read; it has earlier turns.
        head: The last message of the thread.
        bounds: The limits that the rest must fit afterwards, with room for more.

    Returns:
        The summary's id, which is the new head; None if it failed.
    """
    services, log = turn.services, turn.services.log
    if services.summary_cooldown.get(turn.thread_key):
        return None
    older = await uncovered(log, view, most=MAX_LOOKBACK_MESSAGES)
    kept = await log.some(head, await kept_of(turn))
    work = _work(view, bounds, older, kept, results_stay=services.options.results_stay)
    try:
        body = await _body(turn, view, work, bounds.characters)
    except ABOUT_THE_TURN:
        raise
    except WorldAgentError as error:
        end = services.clock.monotonic() + COOLDOWN_SECONDS
        services.summary_cooldown.put(turn.thread_key, True, end=end)
        turn.emit(SummaryFailed, code=error.code)
        return None
    untrusted = turn.gate.marks | view.untrusted | untrusted_in(older)
    if untrusted:
        body["untrusted"] = sorted(untrusted)
    made = await log.append(
        head, [Draft(AGENT, "summary", body)], thread=turn.thread_key, turn_id=turn.turn_id, lease=turn.lease
    )
    turn.emit(HistorySummarised, message_id=made, first=body["first"], last=body["last"], messages=body["messages"])
    return made


def _work(
    view: View, bounds: Bounds, older: Sequence[Message], kept: Sequence[Message], *, results_stay: bool
) -> _Work:
    """Choose the messages that a summary replaces: all turns but the newest that fit in half of the space left."""
    earlier = [*older, *view.earlier]
    groups = [tuple(group) for _, group in groupby(earlier, key=lambda message: message.turn_id)]
    room = None if bounds.characters is None else (bounds.characters - size(view.fixed(bounds.characters))) // 2
    newest = _newest_messages(groups, bounds.messages // 2, room, texts_of(bounds.characters or 0))
    stay = min(newest, len(groups) - 1)  # it must replace at least one turn
    covered = [message for group in groups[: len(groups) - stay] for message in group]
    found = [*view.results, *(each for each in covered if each.kind == "result")]
    results, dropped = list[str](), found
    if results_stay:
        results, dropped = _protected(found, bounds, [each for each in kept if each.depth <= covered[-1].depth])
    new = {message.id for message in covered}
    lines: list[tuple[Message | None, str]] = [(None, said_by(each) or "") for each in dropped if each.id not in new]
    for message in covered:
        said = None if message.id in results else said_by(message)
        if said is not None:
            lines.append((message, said))
    return _Work(lines=tuple(lines), first=covered[0], last=covered[-1], results=tuple(results))


def _newest_messages(groups: Sequence[Group], messages: int, characters: int | None, texts: int) -> int:
    """How many of the newest turns fit."""
    for place, group in enumerate(reversed(groups)):
        _, past = as_history(group, "")
        messages -= len(group)
        characters = None if characters is None else characters - size(past, texts=texts)
        if messages < 0 or (characters is not None and characters < 0):
            return place
    return len(groups)


def _protected(results: Sequence[Message], bounds: Bounds, kept: Sequence[Message]) -> tuple[list[str], list[Message]]:
    """The newest results, which stay word for word, and the others, which are summarised like everything else."""
    left, room = max(1, bounds.messages // 4), (bounds.characters or 4 * DEFAULT_CONTEXT_CHARACTERS) // 4
    if bounds.characters is not None:  # kept messages come first; results that then do not fit are summarised
        room = min(room, bounds.characters // SHARE - sum(len(word_for_word(each)) for each in kept))
    ids: list[str] = []
    for place in range(len(results) - 1, -1, -1):
        left, room = left - 1, room - len(said_by(results[place]) or "")
        if left < 0 or room < 0:
            return ids, list(results[: place + 1])
        ids.insert(0, results[place].id)
    return ids, []


async def _body(turn: TurnContext, view: View, work: _Work, characters: int | None) -> dict[str, Any]:
    visible_characters = characters or DEFAULT_CONTEXT_CHARACTERS
    length = max(_LEAST, _length(turn.services.options.summary_part, work, visible_characters))
    pieces = visible_characters
    while True:
        chunks = list(_chunks(work.lines, max(_LEAST, pieces)))
        summed = [message for messages, _ in chunks[-MAX_MODEL_CALLS:] for message in messages]
        try:
            text = await _summed(turn, view.text, [lines for _, lines in chunks[-MAX_MODEL_CALLS:]], length)
            break
        except ContextExceeded:
            if pieces <= _LEAST:
                raise
        pieces //= 2
    before = {} if view.summary is None else view.summary.body
    first = summed[0] if len(chunks) > MAX_MODEL_CALLS else work.first
    return {
        "text": text,
        "first": before.get("first", first.id),
        "last": work.last.id,
        "messages": before.get("messages", 0) + len(summed),
        "results": list(work.results),
    }


def _length(part: float | None, work: _Work, visible_characters: int) -> int:
    """The limit of characters of a summary.

    It is a part of the length of the text that it replaces, at most half of what the model sees.
    """
    if part is None:
        return visible_characters // SUMMARY_DIVISOR
    return min(int(part * sum(len(said) for _, said in work.lines)), visible_characters // SHARE)


async def _summed(turn: TurnContext, earlier: str, chunks: Sequence[str], length: int) -> str:
    for chunk in chunks:
        earlier = _cut(
            await _ask(turn, {"earlier": earlier, "messages": chunk, "words": length // CHARACTERS_PER_WORD}),
            2 * length,
        )
    return earlier


async def _ask(turn: TurnContext, inputs: dict[str, Any]) -> str:
    name = SUMMARISE.__name__

    async def ask(_: Any) -> Any:
        fields = await turn.ask_without_role(SUMMARISE, inputs)
        text = str(fields["summary"]).strip()
        if not text:
            raise OutputInvalid("the summary is empty", remedy="try again, or use another model")
        return text

    mark = digest(inputs)
    step = Step(
        id=f"{turn.turn_id}/{name}:{mark[:12]}", parent=turn.turn_id, name=name, kind="model", input=mark, body=ask
    )
    given = await turn.drive.run(step)
    if given is SUSPENDED:
        interrupt(STOPPED)
    return str(given)


def _chunks(lines: Sequence[tuple[Message | None, str]], most: int) -> Iterator[tuple[list[Message], str]]:
    """Join lines to texts of at most `most` characters, each with its messages."""
    messages: list[Message] = []
    text = ""
    for message, said in lines:
        line = _middle_out(said, most)
        if text and len(text) + len(line) + 2 > most:
            yield messages, text
            messages, text = [], ""
        text = f"{text}\n\n{line}" if text else line
        if message is not None:
            messages.append(message)
    if text:
        yield messages, text


def _middle_out(text: str, most: int) -> str:
    """A text without its middle, if it is too long."""
    left = " [...] "
    half = (most - len(left)) // 2
    return text if len(text) <= most else f"{text[:half]}{left}{text[-half:]}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [...]"


class Window:
    """What the model sees in one round.

    Attributes:
        head: The last message of the thread: the given head, or the summary that was appended after it.
        message: The fields of this turn's message.
        history: The messages before it.
    """

    def __init__(self, turn: TurnContext, head: str, view: View, own: int, *, holder: Holder | None = None) -> None:
        self.head = head
        self._holder = holder
        self._turn = turn
        self._own = own
        self._asked = view.asked.id
        self._tried = False
        self._agreed: int | None = None
        self._fixed: list[Entry] = []
        self._recent: list[Entry] = []
        options = turn.services.options
        self._bounds = Bounds(messages=options.history_limit, characters=options.history_characters)
        self._show(view)

    @classmethod
    async def open(
        cls, turn: TurnContext, head: str, asked: str, *, first: bool, own: int, holder: Holder | None = None
    ) -> Self:
        """Read what the model sees, and make a summary if that is too much.

        Args:
            turn: The turn.
            head: The last message of its thread.
            asked: The id of the turn's message.
            first: Whether this is the turn's first round. Later rounds add nothing that could be summarised.
            own: How many characters the turn's own steps have.
            holder: Holds what a guarded model does not read; None if the model is not guarded.
        """
        window = cls(turn, head, await view_of(turn, head, asked), own, holder=holder)
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
            self._recent = self._recent[len(self._recent) // 2 + 1 :] if len(self._recent) > 1 else []
        elif self._fixed:
            self._fixed = []
        else:
            return False
        return True

    @property
    def history(self) -> list[Entry]:
        """The messages before this turn's message."""
        return [*self._fixed, *self._recent]

    async def agreed(self, examples: Examples) -> int:
        """The number of entries at the end of the history that examples can have.

        They come after the last turn that is not kept as examples. Older ones, and so a summary, can have its words.

        Args:
            examples: The examples of the agent.
        """
        if self._agreed is None:
            turns = await examples.agreed(sorted({message.turn_id for message in self._view.earlier}))
            self._agreed = len(self._view.since(turns))
        return min(self._agreed, len(self._recent))

    async def _summarise(self, bounds: Bounds) -> bool:
        self._tried = True
        if not self._turn.services.options.summaries:
            return False
        made = await summarise(self._turn, self._view, self.head, bounds)
        if made is None:
            return False
        self.head, self._bounds, self._agreed = made, bounds, None
        self._show(await view_of(self._turn, made, self._asked))
        return True

    def _show(self, view: View) -> None:
        self._view = view
        if self._holder is not None:
            self._turn.gate.hold(*view.untrusted)
            view = view.for_guarded(self._holder)
        else:
            self._turn.gate.mark(*view.untrusted)
        most = self._bounds.characters
        self._fixed = view.fixed(most)
        self.message = view.message()
        recent = view.before()
        if most is not None:
            texts = texts_of(most)
            recent = _newest(recent, most - size(self._fixed) - self._own, texts)
        self._recent = recent


def _newest(past: list[Entry], most: int, texts: int) -> list[Entry]:
    left = most
    for at in range(len(past) - 1, -1, -1):
        left -= size([past[at]], texts=texts)
        if left < 0:
            return past[at + 1 :]
    return past
