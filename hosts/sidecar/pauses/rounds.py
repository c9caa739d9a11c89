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


__all__ = ["Round", "call_digest", "declined"]
