"""What a paused turn waits for, as a person reads it: texts that can steer no terminal, with long values shortened.

How it is answered is each host's own matter: what is typed, a form, JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ...core.pauses import Pause
from . import forms

_ARGUMENTS, _OPTIONS = 30, 50  # how many are shown
_VALUE, _QUESTION, _OPTION = 300, 4000, 200  # characters of each that are shown
_NAMES: Final = 20  # columns in which the names of a form's fields line up

_NUMBER: Final = re.compile(r"[0-9]{1,9}")

# What a model says must not steer the terminal: no control characters but tab and line feed, none that turn the order
# of others around, and line feeds for the separators that some terminals take for more.
_CONTROLS: dict[int, str | None] = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
) | {0x2028: "\n", 0x2029: "\n"}


def pause_lines(pause: Pause) -> list[str]:
    """Tell a person what a turn waits for, in some lines."""
    return [*_asked(pause), *_about(pause)]


def is_late(pause: Pause) -> bool:
    """Whether it takes no answer any more, and fails once the turn goes on."""
    return pause.expires is not None and pause.expires <= datetime.now(UTC)


def unanswered(pauses: Iterable[Pause]) -> tuple[Pause, ...]:
    """The pauses that have no answer yet, out of those of a thread."""
    return tuple(pause for pause in pauses if not pause.answered)


def printable(text: str) -> str:
    """Return `text` without what could steer a terminal."""
    return text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """A text in one line, without what could steer a terminal."""
    return " ".join(printable(text).split())


def numbered(options: tuple[str, ...]) -> bool:
    """Whether options go by number: not where one of them could be taken for the number of another."""
    return not any(_NUMBER.fullmatch(option.strip()) for option in options)


def _asked(pause: Pause) -> Iterator[str]:
    """What is asked: the call or the question, and what belongs to it."""
    function = one_line(pause.function)
    match pause.kind:
        case "approval":
            yield f"approval of a call: {function}"
        case "uncertain":
            yield f"uncertain call: {function}"
            yield "It was cut off while it ran, and may have done what it does or not."
        case "question":
            yield "question:"
            yield from _indented(_short(pause.question or "", _QUESTION))
    yield from _arguments(pause)
    if pause.kind == "approval":
        for word, told in _facts(pause):
            yield f"{word}: {one_line(_short(told, _QUESTION if word == 'description' else _VALUE))}"
    if pause.options is not None:
        yield from _choices(pause.options)
    elif pause.kind == "question" and pause.schema is not None and not forms.is_text(pause.schema):
        yield from _form(pause.schema)


def _about(pause: Pause) -> Iterator[str]:
    """How the pause stands: what was wrong with the last answer, and until when there may be one."""
    if pause.problem is not None:
        yield f"the last answer was not taken: {one_line(_short(pause.problem, _QUESTION))}"
    if pause.expires is not None:
        word = "expired at" if is_late(pause) else "open until"
        yield f"{word} {pause.expires.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _arguments(pause: Pause) -> Iterator[str]:
    for name, value in list(pause.arguments.items())[:_ARGUMENTS]:
        yield f"  {one_line(name)}: {_short(_json(value), _VALUE)}"
    if len(pause.arguments) > _ARGUMENTS:
        yield f"  ({len(pause.arguments) - _ARGUMENTS} more)"


def _facts(pause: Pause) -> Iterator[tuple[str, str]]:
    """What a person should know of a call beside its arguments: a word each, and what there is to it."""
    if pause.risk:
        yield "risk", ", ".join(word.replace("_", " ") for word in pause.risk)
    if pause.description:
        yield "description", pause.description
    if pause.caller:
        yield "called by", pause.caller
    if pause.reason:
        yield "asked since", pause.reason
    if pause.approvers:
        yield "may answer", ", ".join(pause.approvers)


def _choices(options: tuple[str, ...]) -> Iterator[str]:
    width = len(str(len(options)))
    for number, option in enumerate(options[:_OPTIONS], start=1):
        mark = f"{number:>{width}}" if numbered(options) else "-"
        yield f"  {mark}  {one_line(_short(option, _OPTION))}"
    if len(options) > _OPTIONS:
        yield f"  ({len(options) - _OPTIONS} more)"


def _form(schema: forms.Schema) -> Iterator[str]:
    lines = forms.field_lines(schema)
    width = min(_NAMES, max((len(name) for name, _ in lines), default=0))
    for name, told in lines:
        yield f"  {one_line(name).ljust(width)}  {one_line(_short(told, _VALUE))}"


def _json(value: Any) -> str:
    """A value as JSON in one line; what cannot be seen is written as an escape, so that what is approved is seen."""
    said = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in said)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in printable(text).split("\n")]


__all__ = ["is_late", "numbered", "one_line", "pause_lines", "printable"]
