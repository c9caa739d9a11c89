"""The calls of a scripted model and its next replies. Needs no model library; `scripted` adapts it to dspy."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic_core import to_json

Format: TypeAlias = Literal["chat", "json", "native"]
Outcome: TypeAlias = str | Mapping[str, Any] | BaseException | type[BaseException]

_HEADER = re.compile(r"\s*\[\[ ## (\w+) ## \]\]")
_REMINDERS = (
    "\n\nRespond with the corresponding output fields, starting with the field `[[ ## ",
    "\n\nRespond with a JSON object in the following order of fields: `",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """One request that reached the scripted model. Its repr shows no text, so that a failing test prints no role.

    Attributes:
        index: The number of the call, from 1.
        system: The system message, or an empty string.
        messages: All other messages in order, as pairs of speaker (`"user"`, `"assistant"`) and text.
        media: All images and documents in order, as pairs of kind (`"image"`, `"document"`) and address or data URI.
        tools: The names of the tools that were offered by the service's own means, apart from the messages.
        may_call: Whether the model can use them; at the last step it must answer.
    """

    index: int
    system: str = field(repr=False)
    messages: tuple[tuple[str, str], ...] = field(repr=False)
    media: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tools: tuple[str, ...] = ()
    may_call: bool = False

    # Marks this object for the scan for roles as the fake's own record.
    _holds_prompts = True

    @property
    def text(self) -> str:
        """Everything that the model was sent, as one string."""
        return "\n\n".join((self.system, *(text for _, text in self.messages)))

    @property
    def user(self) -> str:
        """The user messages since the last answer, joined by blank lines: the message, results in words, the role."""
        return "\n\n".join(self._since)

    @property
    def fields(self) -> dict[str, str]:
        """The input fields in those messages: the text after each `[[ ## name ## ]]` line."""
        return {name: value for text in self._since for name, value in _sections(text).items()}

    @property
    def steps(self) -> tuple[str, ...]:
        """The results of the calls that the model asked for since the last answer, and notes on its outputs, in order.

        Each result is shown as the model reads it, whether in words or by its service's own means.
        """
        return tuple(
            text for speaker, text in self._turn if speaker == "tool" or (speaker == "user" and _is_note(text))
        )

    @property
    def _since(self) -> list[str]:
        return [text for speaker, text in self._turn if speaker == "user"]

    @property
    def _turn(self) -> list[tuple[str, str]]:
        """The messages since the last answer, without notes that come before the turn's first message."""
        found: list[tuple[str, str]] = []
        following = ""
        for speaker, text in reversed(self.messages):
            # An assistant message before the results of its calls is a step, not an answer.
            if speaker == "assistant" and following != "tool":
                break
            following = speaker
            found.insert(0, (speaker, text))
        begin = next((place for place, (_, text) in enumerate(found) if _HEADER.match(text)), 0)
        return found[begin:]

    @property
    def role(self) -> str | None:
        """The `role` field, or None if the prompt has none."""
        return self.fields.get("role")


Reply: TypeAlias = Outcome | Awaitable[Outcome] | AsyncIterable[str] | Callable[[ScriptedCall], Any]


def _is_note(message: str) -> bool:
    return not (_HEADER.match(message) or message.startswith(tuple(each.lstrip() for each in _REMINDERS)))


def _sections(message: str) -> dict[str, str]:
    cut = max(message.rfind(reminder) for reminder in _REMINDERS)
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (message[:cut] if cut >= 0 else message).splitlines(keepends=True):
        header = _HEADER.match(line)
        if header:
            lines = found[header[1]] = [line[header.end() :]]
        else:
            lines.append(line)
    return {name: "".join(parts).strip("\n") for name, parts in found.items()}


def render(outcome: str | Mapping[str, Any], form: Format) -> str:
    """Return the completion text for `outcome`: a string as it is, fields in the form that the adapter reads."""
    if isinstance(outcome, str):
        return outcome
    if form == "json":
        return to_json(dict(outcome)).decode()
    shown = {name: value if isinstance(value, str) else to_json(value).decode() for name, value in outcome.items()}
    return "".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in shown.items()) + "[[ ## completed ## ]]"


def pieces(text: str, size: int | None) -> Iterator[str]:
    """Cut `text` into pieces of `size` characters, or into words with the white space after them."""
    if size is None:
        return (found[0] for found in re.finditer(r"\s*\S+\s*|\s+", text))
    return (text[at : at + size] for at in range(0, len(text), size))


class Script:
    """The replies and the record of calls, shared by all copies of one scripted model. It is thread-safe."""

    _holds_prompts = True

    def __init__(
        self,
        replies: Sequence[Reply] | Callable[[ScriptedCall], Any],
        on_call: Callable[[ScriptedCall], None] | None,
    ) -> None:
        self.calls: list[ScriptedCall] = []
        self._answer = replies if callable(replies) else None
        self._replies: list[Reply] = [] if callable(replies) else list(replies)
        self._on_call = on_call
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Script:
        return self

    @property
    def size(self) -> int | None:
        """The number of replies; None for a function, which never runs out."""
        return None if self._answer else len(self._replies)

    def take(
        self,
        system: str,
        messages: tuple[tuple[str, str], ...],
        media: tuple[tuple[str, str], ...] = (),
        tools: tuple[str, ...] = (),
        *,
        may_call: bool = False,
    ) -> tuple[ScriptedCall, Reply | None]:
        """Record a call and return it with its reply; None if the replies have run out."""
        with self._lock:
            call = ScriptedCall(
                index=len(self.calls) + 1,
                system=system,
                messages=messages,
                media=media,
                tools=tools,
                may_call=may_call,
            )
            self.calls.append(call)
        if self._on_call:
            self._on_call(call)
        if self._answer:
            return call, self._answer
        return call, self._replies[call.index - 1] if call.index <= len(self._replies) else None
