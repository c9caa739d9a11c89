"""Events as progress of the request that asks for them, at the client's own pace. Whose they are is not known here."""

from __future__ import annotations

import asyncio
from typing import Any

from ....core.events import Event
from ._call import Call
from ._following import behind


class Progress:
    """Sends the events of one call, if its client asked for them.

    Args:
        call: The call.
        seen: The last event that the client has by an earlier round of the call.

    Attributes:
        seq: The number of the last event that the client has, or need not have.
    """

    def __init__(self, call: Call[Any], *, seen: int = 0) -> None:
        self._session = call.ctx.session
        self._stall = call.house.limits.reader_stall
        self._after: int = max(call.given.after, seen)
        self._has: int | None = self._after if seen or "after" in call.given.model_fields_set else None
        self._wanted = call.wants_progress
        self._offset = 0
        self._seq = 0

    @property
    def seq(self) -> int:
        """The number of the last event, of this call's or of what the client had before."""
        return max(self._seq, self._after)

    @property
    def has(self) -> int | None:
        """The last event that the client has; None where that is not known, or nobody wants any."""
        has = self._seq or self._has
        return has if self._wanted and not self._offset else None

    async def send(self, event: Event) -> None:
        """Send one event, unless the client has it.

        Raises:
            Refused: The client does not read (`reader_behind`).
        """
        # The events of a turn that keeps none count from 1 in each run; those of one call count on all the same.
        if event.seq + self._offset <= self._seq:
            self._offset = self._seq
        self._seq = event.seq + self._offset
        if not self._wanted or self._seq <= self._after:
            return
        told = event.model_copy(update={"seq": self._seq}) if self._offset else event
        late = False
        try:
            async with asyncio.timeout(self._stall):
                await self._session.report_progress(self._seq, message=told.model_dump_json())
        except TimeoutError:
            late = True
        if late:
            raise behind(event.turn_id)


__all__ = ["Progress"]
