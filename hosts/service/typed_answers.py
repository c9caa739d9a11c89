"""A pause as text for a person, and the answer that the person types. An ambiguous answer is refused, never guessed.

This module handles only texts. Its callers send the answers, and the code that resumes the turn decides which ones it
accepts. `answers` reads answers that come as JSON or in a form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from ...core.errors import InvalidArgument
from ...core.pauses import Answer, Approve, Happened, NotHappened, Pause, PersonAnswer, Reject, RunAgain, may_be_always
from ...core.validation import is_text
from . import pauses as forms
from .pauses import numbered, one_line, pause_lines, takes_answer

Always = Literal[False, "same", "any"]

_APPROVES: Final = ("y", "yes", "approve")
_REJECTS: Final = re.compile(r"(?:n|no|reject)(?:[.,:;!]?(?:\s+(.*))?)", re.IGNORECASE | re.DOTALL)
_EDITS: Final = re.compile(r"edit\s+(.+)", re.IGNORECASE | re.DOTALL)


def how_to_approve(pause: Pause) -> str:
    """Describe in one line what `read_approval` accepts."""
    ways = ["yes", "no REASON"]
    if pause.schema is not None and forms.fields(pause.schema):
        ways.append("edit FIELD=VALUE ..." if forms.named(pause.schema) else "edit {JSON}")
    if may_be_always(pause):
        ways += ["always, for equal arguments in this turn", "always any, for any"]
    return f"{'; '.join(ways[:-1])}; or {ways[-1]}"


def read_approval(pause: Pause, said: str) -> Approve | Reject:
    """Read a person's answer to a call that waits for approval. An ambiguous answer is refused, never guessed.

    Args:
        pause: The call as it was shown. An approval is for this call and nothing else.
        said: The typed text, without blanks around it.

    Raises:
        InvalidArgument: The text does not answer the call; the remedy lists the answers.
    """
    word = said.casefold()
    if word in _APPROVES:
        return Approve(hash=pause.hash)
    if word == "always":
        return approval_of(pause, always="same")
    if word.split() == ["always", "any"]:
        return approval_of(pause, always="any")
    changed = _EDITS.fullmatch(said)
    if changed is not None:
        return approval_of(pause, arguments=_edited(pause, changed[1]))
    refused = _REJECTS.fullmatch(said)
    if refused is None:
        raise InvalidArgument(
            "this is neither a clear yes nor a clear no, so nothing was answered",
            remedy=f"answer with {how_to_approve(pause)}",
        )
    return Reject((refused[1] or "").strip())


def approval_of(pause: Pause, *, arguments: Any = None, always: Always = False) -> Approve:
    """Approve the call that was shown.

    Args:
        pause: The call.
        arguments: New arguments, which replace all of the call's.
        always: Whether to approve later calls of the turn too: `same` with equal arguments, `any` with any arguments.

    Raises:
        InvalidArgument: The arguments are not valid, or each call of this function must be approved by itself.
    """
    if always and not may_be_always(pause):
        raise InvalidArgument(
            f"{pause.function!r} is destructive, so each call of it must be approved by itself",
            remedy="approve only this call",
        )
    if arguments is None:
        return Approve(always=always, hash=pause.hash)
    if isinstance(arguments, Mapping):
        problems = [] if pause.schema is None else forms.validation_errors(pause.schema, arguments)
    else:
        problems = ["they must be a JSON object"]
    if problems:
        raise InvalidArgument(
            f"the arguments are not valid for {pause.function!r}: {'; '.join(problems)}",
            remedy="give FIELD=VALUE for each argument to change, or a JSON object with all arguments",
        )
    return Approve(arguments=dict(arguments), always=always, hash=pause.hash)


def _edited(pause: Pause, text: str) -> Any:
    """All arguments: the named ones replace those of the call, and a JSON object replaces all of them."""
    if text.lstrip().startswith("{"):
        return forms.read_json(text)
    if pause.schema is None or not forms.named(pause.schema):
        raise InvalidArgument(
            f"the arguments of {pause.function!r} must be given as JSON", remedy=f"answer with {how_to_approve(pause)}"
        )
    return {**pause.arguments, **forms.read_pairs(pause.schema, text)}


_HAPPENED: Final = re.compile(r"happened(?:\s+(.+))?", re.IGNORECASE | re.DOTALL)


def pause_text(pause: Pause, *, answer: bool = True) -> str:
    """Describe what a turn waits for and how to answer it.

    Args:
        pause: One of `turn.pauses`.
        answer: Whether to say how to answer. It is never said for an expired pause.

    Returns:
        Lines that cannot control a terminal. Long values are shortened, and their length is given.
    """
    how = [f"answer: {how_to_answer(pause)}"] if answer and takes_answer(pause) else []
    return "\n".join([*pause_lines(pause), *how])


def how_to_answer(pause: Pause) -> str:
    """Describe in one line what `read_answer` accepts."""
    if pause.kind == "approval":
        return how_to_approve(pause)
    if pause.kind == "reply":
        return "nothing: the host's code brings the reply"
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
        case "reply":
            raise InvalidArgument(
                "the turn waits for the reply to a message, and no person can answer for it",
                remedy="wait for the reply, or cancel the turn",
            )


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
    if numbered(options) and forms.NUMBER.fullmatch(number) and 1 <= int(number) <= len(options):
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
