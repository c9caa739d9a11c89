"""The `requestState` between two calls of a client of revision 2026-07-28. It names the turn that asked.

It is not signed or encrypted. It has nothing that the caller could not send anyway, and grants nothing: turn, thread
and answers are checked against the caller like those of `resume`. So it stays valid after a restart, and in every
process on the database.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ....core import canonical_json
from ....core.errors import InvalidArgument
from ....core.pauses import Pause, may_be_always
from ...pauses import is_late
from .answers import FORMS, default_forms

_PREFIX: Final = "wa1."
MAX_STATE_CHARACTERS: Final = 32_768  # characters
_SECRET: Final = ("role", "skill")
"""Arguments that must not be stored in any form, not even as a digest."""

_Id = Annotated[str, Field(min_length=1, max_length=200)]


class Round(BaseModel):
    """Identifies the turn that asked.

    Attributes:
        turn: The id of the turn.
        thread: Its thread.
        call: A digest of the call, without its role and skill.
        declined: The ids of the pauses that a person declined to answer.
        idle: How many rounds in a row brought no valid answer.
        seq: The number of the last event that was sent to the client by then.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    turn: _Id
    thread: _Id
    call: Annotated[str, Field(max_length=64)]
    declined: Annotated[list[_Id], Field(max_length=100)] = []
    idle: Annotated[int, Field(ge=0, le=10)] = 0
    seq: Annotated[int, Field(ge=0, le=2**53)] = 0

    @classmethod
    def read(cls, text: str, call: str) -> Self:
        """Read the state that a client sent back.

        Args:
            text: The `requestState`.
            call: The digest of the call that it came with.

        Raises:
            InvalidArgument: The text is not a valid state, or belongs to another call.
        """
        found: Self | None = None
        if text.startswith(_PREFIX) and len(text) <= MAX_STATE_CHARACTERS:
            try:
                data = base64.b64decode(text.removeprefix(_PREFIX).encode(), altchars=b"-_", validate=True)
                found = cls.model_validate(json.loads(data))
            except (binascii.Error, ValueError, RecursionError, ValidationError):
                found = None
        if found is None:
            raise _refused("is not one that this sidecar sent")
        if found.call != call:
            raise _refused("belongs to another call")
        return found

    def text(self) -> str:
        """Return the text that the client must send back."""
        data = json.dumps(self.model_dump(), separators=(",", ":")).encode()
        return _PREFIX + base64.urlsafe_b64encode(data).decode()


def call_digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a digest of a call's tool and arguments, without its role and skill."""
    digested = {name: value for name, value in arguments.items() if name not in _SECRET}
    return hashlib.sha256(canonical_json([tool, digested]).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def declined(ids: Sequence[str]) -> list[str]:
    """Return the newest ids, as many as a round can hold."""
    return list(ids)[-100:]


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the requestState {why}",
        remedy="send it back unchanged, with the same tool and arguments; or call the tool `resume` with the answers",
    )


_CONTINUES: Final = {
    "cut_off": "its process ended; it continues from its last step",
    "stopped": "it was stopped; it continues from its last step",
    "failed": "it failed; once the cause is fixed, it continues from its last step",
}


def pause_result(pause: Pause) -> dict[str, Any]:
    """Return a pause as JSON, with the answers that it accepts.

    Returns:
        All fields of the pause; `expired`, whether it no longer accepts an answer; `answers`, the forms of answer by
        their names, each of which can be sent once its blanks are filled in; `always`, whether `approve` can have it.
    """
    late = is_late(pause)
    forms = {} if late else default_forms(pause)
    about: dict[str, Any] = {"expired": late, "answers": forms}
    if pause.kind == "approval":
        about["always"] = may_be_always(pause)
    return {**pause.to_json(), **about}


def next_steps(
    status: str,
    turn_id: str,
    *,
    ids: Mapping[str, Any],
    pauses: Sequence[Pause] = (),
    seq: int | None = 0,
    needs: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return what to call to continue a turn; empty if it is over.

    Args:
        status: The status of the turn.
        turn_id: The id of the turn.
        ids: `workspace`, `account`, `channel` and `thread` of the call; None values are omitted.
        pauses: The pauses that the turn waits for.
        seq: The number of the last event that the client has; None if the turn keeps no events.
        needs: The arguments that `resume` needs again: `role`, `skill`.

    Returns:
        Objects with `tool`, `arguments`, `why` and `needs`. A person's answers are never filled in, nor is a role or a
        skill, which are stored nowhere.
    """
    known = {name: value for name, value in ids.items() if value is not None}
    match status:
        case "paused" if not pauses:
            return [_resume(known, "it is answered; resume continues it", needs)]
        case "paused" | "failed" if pauses:
            fill = () if all(map(is_late, pauses)) else ("answers",)
            return [_resume({**known, "answers": {}}, _why(pauses), (*fill, *needs))]
        case "cut_off" | "stopped" | "failed":
            return [_resume(known, _CONTINUES[status], needs)]
        case "running" if seq is None:
            return [_step("resume", known, "the turn is running and keeps no events; resume waits a while for its end")]
        case "running":
            where = {name: value for name, value in known.items() if name in ("workspace", "account")}
            return [
                _step("events", {**where, "turn_id": turn_id, "after": seq}, "the turn is running; its next events")
            ]
        case _:
            return []


def _why(pauses: Sequence[Pause]) -> str:
    asked = [f"{pause.id} ({_forms(pause)})" for pause in pauses if not is_late(pause)]
    late = "; an expired pause fails once the turn continues" if len(asked) < len(pauses) else ""
    if not asked:
        return f"no pause can be answered any more{late}"
    return f"a person must answer; `answers` takes one form of answer for each pause: {', '.join(asked)}{late}"


def _forms(pause: Pause) -> str:
    forms = " or ".join(FORMS[pause.kind])
    return f"{forms}, by {' or '.join(pause.approvers)}" if pause.approvers else forms


def _resume(arguments: dict[str, Any], why: str, needs: Sequence[str]) -> dict[str, Any]:
    again = [name for name in needs if name != "answers"]
    more = f"; add the {' and the '.join(again)} that the turn began with" if again else ""
    return {**_step("resume", arguments, f"{why}{more}"), "needs": list(needs)}


def _step(tool: str, arguments: dict[str, Any], why: str) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments, "why": why}
