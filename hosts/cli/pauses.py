"""What a paused turn waits for, as text for a person, and how to read the answer that the person types.

This module handles only texts. `chat` and the other commands send the answers, and the code that resumes the turn
decides which ones it accepts.
"""

from __future__ import annotations

import re
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
from ..pauses import forms, is_late, numbered, one_line, pause_lines
from .approvals_text import how_to_approve, read_approval

_HAPPENED: Final = re.compile(r"happened(?:\s+(.+))?", re.IGNORECASE | re.DOTALL)
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


def pause_text(pause: Pause, *, answer: bool = True) -> str:
    """Describe what a turn waits for and how to answer it.

    Args:
        pause: One of `turn.pauses`.
        answer: Whether to say how to answer. It is never said for an expired pause.

    Returns:
        Lines that cannot control a terminal. Long values are shortened, and their length is given.
    """
    how = [f"answer: {how_to_answer(pause)}"] if answer and not is_late(pause) else []
    return "\n".join([*pause_lines(pause), *how])


def how_to_answer(pause: Pause) -> str:
    """Describe in one line what `read_answer` accepts."""
    if pause.kind == "approval":
        return how_to_approve(pause)
    if pause.kind == "uncertain":
        return "happened RESULT, with the result as JSON if it has one; not happened; or again, to call it again"
    if pause.options is not None:
        return "the number or the text of an option" if numbered(pause.options) else "the text of an option"
    if forms.is_text(pause.schema):
        return "a text"
    assert pause.schema is not None
    if forms.plain(pause.schema):
        return "FIELD=VALUE FIELD=VALUE ..., or a JSON object"
    return "a JSON object" if forms.fields(pause.schema) else "a JSON value"


def read_answer(pause: Pause, text: str) -> PersonAnswer:
    """Read the text that a person typed as the answer to a pause. An ambiguous answer is refused, never guessed.

    Args:
        pause: The pause.
        text: The typed text.

    Raises:
        InvalidArgument: The text does not answer the pause; the remedy lists the answers.
    """
    if not is_text(text):
        raise InvalidArgument("the answer must be a text and not empty", remedy=f"answer with {how_to_answer(pause)}")
    match pause.kind:
        case "approval":
            return read_approval(pause, text.strip())
        case "uncertain":
            return _outcome(pause, text.strip())
        case "question":
            return Answer(_chosen(pause, text) if pause.options is not None else _value(pause, text))


def _outcome(pause: Pause, said: str) -> Happened | NotHappened | RunAgain:
    words = " ".join(said.casefold().split())
    if words == "not happened":
        return NotHappened()
    if words == "again":
        return RunAgain()
    happened = _HAPPENED.fullmatch(said)
    if happened is None:
        raise InvalidArgument(
            f"this does not say whether the effect of {one_line(pause.function)!r} happened",
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
    if numbered(options) and _NUMBER.fullmatch(number) and 1 <= int(number) <= len(options):
        return options[int(number) - 1]
    raise InvalidArgument("the answer must be one of the options", remedy=f"answer with {how_to_answer(pause)}")


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
    problems = [] if schema is None else forms.validation_errors(schema, value)
    if problems:
        raise InvalidArgument(
            f"the answer is not valid: {'; '.join(problems)}", remedy=f"answer with {how_to_answer(pause)}"
        )
    return value


__all__ = ["how_to_answer", "pause_text", "read_answer"]
