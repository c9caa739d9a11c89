"""How a person answers a call that waits for approval. `pauses` handles the other kinds of pauses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from ...core.errors import InvalidArgument
from ...core.pauses import Approve, Pause, Reject, may_be_always
from ..pauses import forms

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


__all__ = ["approval_of", "how_to_approve", "read_approval"]
