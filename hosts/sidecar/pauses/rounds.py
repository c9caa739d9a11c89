"""What stands between two calls of a client of the revision 2026-07-28: which turn is asked about, as it echoes it.

It is not sealed. It says nothing that the caller could not say, and grants nothing: turn, thread and answers are
checked against the caller as those of `resume` are. So it holds after a restart, and in every process on the database.
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
_LONGEST: Final = 32_768  # characters
_SECRET: Final = ("role", "skill")
"""Arguments of which nothing may be kept, a digest neither."""

_Id = Annotated[str, Field(min_length=1, max_length=200)]


class Round(BaseModel):
    """Which turn a call asked about.

    Attributes:
        turn: The turn.
        thread: Its thread.
        call: What the call was, without its role.
        declined: The pauses that a person did not want to answer.
        idle: How many rounds in a row brought no answer that fits.
        seq: The last event that the client was sent by then.
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
        """Read what a client sent back.

        Args:
            text: The `requestState`.
            call: What the call is that it came with.

        Raises:
            InvalidArgument: It is none of these, or belongs to another call.
        """
        found: Self | None = None
        if text.startswith(_PREFIX) and len(text) <= _LONGEST:
            try:
                data = base64.b64decode(text.removeprefix(_PREFIX).encode(), altchars=b"-_", validate=True)
                found = cls.model_validate(json.loads(data))
            except (binascii.Error, ValueError, RecursionError, ValidationError):
                found = None
        if found is None:
            raise _refused("is not one that this sidecar gave")
        if found.call != call:
            raise _refused("belongs to another call")
        return found

    def text(self) -> str:
        """What the client is to send back."""
        data = json.dumps(self.model_dump(), separators=(",", ":")).encode()
        return _PREFIX + base64.urlsafe_b64encode(data).decode()


def call_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """What stands for a call: its tool and its arguments, without the role and the skill that came with it."""
    told = {name: value for name, value in arguments.items() if name not in _SECRET}
    return hashlib.sha256(canonical_json([tool, told]).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def declined(ids: Sequence[str]) -> list[str]:
    """As many as a round can name, the newest ones."""
    return list(ids)[-100:]


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"the requestState {why}",
        remedy="send it back as it came, with the same tool and arguments; or call the tool `resume` with the answers",
    )


__all__ = ["Round", "call_of", "declined"]
