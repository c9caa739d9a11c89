"""What a paused turn waits for, as a person reads it, and a person's answer out of what they type.

Texts alone: where answers go is `_chat`'s and the other commands' matter, and whether one is taken is decided where the
turn goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ...core.errors import InvalidArgument
from ...core.pauses import (
    Answer,
    Happened,
    NotHappened,
    Pause,
    PersonAnswer,
    RunAgain,
)
from ...core.validation import is_text
from . import _pause_forms as forms
from ._approvals_text import how_to_leave, leave_lines, read_leave
from ._output import printable

_VALUE: Final = 300  # characters of an argument that are shown
_ARGUMENTS: Final = 30
_QUESTION: Final = 4000
_OPTION: Final = 200
_OPTIONS: Final = 50

_HAPPENED: Final = re.compile(r"happened(?:\s+(.+))?", re.IGNORECASE | re.DOTALL)
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


def pause_text(pause: Pause, *, answer: bool = True) -> str:
    """Tell a person what a turn waits for and how to answer it.

    Args:
        pause: One of `turn.pauses`.
        answer: Whether to say how; of one that has expired it is not said.

    Returns:
        Some lines that cannot steer a terminal. Long values are shortened, with their length.
    """
    how = [f"answer: {how_to_answer(pause)}"] if answer and not is_late(pause) else []
    return "\n".join([*_asked(pause), *_about(pause), *how])


def how_to_answer(pause: Pause) -> str:
    """Tell in one line what `read_answer` takes."""
    if pause.kind == "approval":
        return how_to_leave(pause)
    if pause.kind == "uncertain":
        return "happened RESULT, where it has one as JSON; not happened; or again, to call it again"
    if pause.options is not None:
        return "the number or the text of an option" if _numbered(pause.options) else "the text of an option"
    if forms.is_text(pause.schema):
        return "a text"
    assert pause.schema is not None
    if forms.plain(pause.schema):
        return "FIELD=VALUE FIELD=VALUE ..., or a JSON object"
    return "a JSON object" if forms.fields(pause.schema) else "a JSON value"


def read_answer(pause: Pause, text: str) -> PersonAnswer:
    """Read what a person typed as the answer to a pause. What is ambiguous is refused, never guessed.

    Args:
        pause: What is answered.
        text: What was typed.

    Raises:
        InvalidArgument: It is no answer to this; the remedy says what is one.
    """
    if not is_text(text):
        raise InvalidArgument("the answer is empty or no text", remedy=f"answer with {how_to_answer(pause)}")
    match pause.kind:
        case "approval":
            return read_leave(pause, text.strip())
        case "uncertain":
            return _outcome(pause, text.strip())
        case "question":
            return Answer(_chosen(pause, text) if pause.options is not None else _value(pause, text))


def is_late(pause: Pause) -> bool:
    """Whether it takes no answer any more, and fails once the turn goes on."""
    return pause.expires is not None and pause.expires <= datetime.now(UTC)


def _asked(pause: Pause) -> Iterator[str]:
    """What is asked: the call or the question, and what belongs to it."""
    function = _line(pause.function)
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
        yield from (f"{word}: {_line(_short(told, _VALUE))}" for word, told in leave_lines(pause))
    if pause.options is not None:
        yield from _choices(pause.options)
    elif pause.kind == "question" and pause.schema is not None and not forms.is_text(pause.schema):
        yield from _form(pause.schema)


def _about(pause: Pause) -> Iterator[str]:
    if pause.problem is not None:
        yield f"the last answer was not taken: {_line(_short(pause.problem, _QUESTION))}"
    if pause.expires is not None:
        word = "expired at" if is_late(pause) else "open until"
        yield f"{word} {pause.expires.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _arguments(pause: Pause) -> Iterator[str]:
    for name, value in list(pause.arguments.items())[:_ARGUMENTS]:
        yield f"  {_line(name)}: {_short(_json(value), _VALUE)}"
    if len(pause.arguments) > _ARGUMENTS:
        yield f"  ({len(pause.arguments) - _ARGUMENTS} more)"


def _choices(options: tuple[str, ...]) -> Iterator[str]:
    width = len(str(len(options)))
    for number, option in enumerate(options[:_OPTIONS], start=1):
        mark = f"{number:>{width}}" if _numbered(options) else "-"
        yield f"  {mark}  {_line(_short(option, _OPTION))}"
    if len(options) > _OPTIONS:
        yield f"  ({len(options) - _OPTIONS} more)"


def _form(schema: forms.Schema) -> Iterator[str]:
    lines = forms.field_lines(schema)
    width = min(20, max((len(name) for name, _ in lines), default=0))
    for name, told in lines:
        yield f"  {_line(name).ljust(width)}  {_line(_short(told, _VALUE))}"


def _outcome(pause: Pause, said: str) -> Happened | NotHappened | RunAgain:
    words = " ".join(said.casefold().split())
    if words == "not happened":
        return NotHappened()
    if words == "again":
        return RunAgain()
    happened = _HAPPENED.fullmatch(said)
    if happened is None:
        raise InvalidArgument(
            f"this does not say what became of {_line(pause.function)!r}",
            remedy=f"answer with {how_to_answer(pause)}",
        )
    return Happened(None if happened[1] is None else forms.read_json(happened[1]))


def _chosen(pause: Pause, text: str) -> str:
    options = pause.options or ()
    for said, alike in ((text, str), (text.strip(), str.strip), (text.strip().casefold(), _folded)):
        found = dict.fromkeys(option for option in options if alike(option) == said)
        if len(found) == 1:
            return next(iter(found))
    number = text.strip()
    if _numbered(options) and _NUMBER.fullmatch(number) and 1 <= int(number) <= len(options):
        return options[int(number) - 1]
    raise InvalidArgument("this is none of the options", remedy=f"answer with {how_to_answer(pause)}")


def _numbered(options: tuple[str, ...]) -> bool:
    """Whether options go by number: not where one of them could be taken for the number of another."""
    return not any(_NUMBER.fullmatch(option.strip()) for option in options)


def _folded(option: str) -> str:
    return option.strip().casefold()


def _value(pause: Pause, text: str) -> Any:
    schema = pause.schema
    if schema is None or forms.is_text(schema):
        value: Any = text
    elif forms.plain(schema) and not text.lstrip().startswith("{"):
        value = forms.read_pairs(schema, text)
    else:
        value = forms.read_json(text)
    problems = [] if schema is None else forms.misfits(schema, value)
    if problems:
        raise InvalidArgument(
            f"the answer does not fit: {'; '.join(problems)}", remedy=f"answer with {how_to_answer(pause)}"
        )
    return value


def _json(value: Any) -> str:
    """A value as JSON in one line; what cannot be seen is written as an escape, so that what is approved is seen."""
    said = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in said)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _line(text: str) -> str:
    return " ".join(printable(text).split())


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in printable(text).split("\n")]


__all__ = ["how_to_answer", "is_late", "pause_text", "read_answer"]
