"""The turns of a chat: begun by a message, gone on with by answers or `/resume`, drained at the end.

`loop` decides which; what is seen of them is the renderer's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from ....core.errors import (
    AlreadyAnswered,
    AnswerInvalid,
    NotAnApprover,
    NothingToResume,
    RoleChanged,
    RoleKeyMismatch,
    RoleRequired,
    ThreadPaused,
    UnknownPause,
    WorldAgentError,
)
from .._turn import DRAIN, as_said_here
from .ports import Renderer
from .session import Talk
from .waiting import OTHERS, standing

if TYPE_CHECKING:
    from ....agent import TurnStream

_REMEDIES: Final[Mapping[type[WorldAgentError], str]] = {
    NotAnApprover: OTHERS,
    RoleChanged: "bring the role back as it was, or go on with what is active now by /resume refresh",
    RoleKeyMismatch: "set role_key to the key of that installation, or put its role.key back; where it is lost, see "
    "`worldagent doctor --rekey`, and go on by /resume refresh",
    RoleRequired: "set it again, or go on with what is active now by /resume refresh",
}
_ROLE_HINT: Final = (
    "/role TEXT sets the role of the thread, chat --role one for every message; then /resume goes on. "
    "/resume refresh goes on with the roles that count now."
)


class Turns:
    """Runs the turns of one chat, one at a time, and shows them.

    Args:
        talk: What the chat is about.
        shown: What shows them.

    Attributes:
        begun: Whether anything was asked of a thread, and with it told how that stands.
    """

    def __init__(self, talk: Talk, shown: Renderer) -> None:
        self._talk, self._shown = talk, shown
        self.begun = False
        self._running = False
        self._draining: asyncio.Task[None] | None = None

    async def say(self, text: str) -> None:
        """Say something and show the answer.

        Raises:
            ThreadPaused: The turn before waits, or was stopped; nothing was sent.
            WorldAgentError: The turn failed.
        """
        self.begun, thread = True, await self._talk.thread()
        attached, self._talk.attached = self._talk.attached, ()
        try:
            await self._follow(thread.stream(text, role=self._talk.role, attachments=attached))
            return
        except ThreadPaused:
            self._talk.attached = attached
        raise ThreadPaused(
            f"nothing was sent: the last turn of the thread {self._talk.thread_id!r} has not ended",
            remedy="go on with it as it says below, or end it with /cancel",
        )

    async def edit(self, text: str) -> None:
        """Say the last message otherwise and show the answer.

        Raises:
            WorldAgentError: There is nothing to edit, or the turn failed.
        """
        self.begun, thread = True, await self._talk.thread()
        stream = thread.stream_edit(text, role=self._talk.role)
        await self._follow(stream)
        self._shown.note(f"what was is kept on the thread {stream.turn.kept_as!r}")

    async def answer(self, text: str) -> None:
        """Take the answer to what is asked next; go on with the turn once nothing is left that this account may answer.

        Raises:
            NotAnApprover: Only others may answer that.
            InvalidArgument: It is no answer to that.
            WorldAgentError: As for `go_on`.
        """
        waiting = self._talk.waiting
        assert waiting is not None, "somebody asks"
        pause = waiting.take(text)
        if waiting.asks:
            self._shown.taken(pause, waiting)
        else:
            await self.go_on()

    async def go_on(self, on_role_change: Literal["fail", "refresh"] = "fail") -> None:
        """Send the answers that there are, go on with the turn and show it.

        Raises:
            WorldAgentError: It cannot go on, or failed. Answers that were taken are not asked for again.
        """
        failure: WorldAgentError
        try:
            await self._go_on(on_role_change)
            return
        except WorldAgentError as error:
            failure = error
        raise as_said_here(failure, _REMEDIES)

    async def _go_on(self, on_role_change: Literal["fail", "refresh"]) -> None:
        from ....agent import UNSET  # the agent is loaded by now

        self.begun = True
        thread, waiting, role = await self._talk.thread(), self._talk.waiting, self._talk.role
        answers = {} if waiting is None else waiting.answers
        stream = thread.stream_resume(
            dict(answers), role=UNSET if role is None else role, on_role_change=on_role_change
        )
        try:
            await self._follow(stream, entered=answers.clear)  # by then they are taken
        except (AnswerInvalid, NotAnApprover):
            answers.clear()  # which of them it was is in the text alone
            raise

    async def pick_up(self) -> None:
        """Look where the thread stands, and show what waits there or can go on."""
        self.begun = True
        state = await self._talk.look()
        self.show_waiting(standing(state))

    def show_waiting(self, told: str | None) -> None:
        """Show what waits, or else `told`."""
        waiting = self._talk.waiting
        if waiting is not None:
            self._shown.waits(waiting)
        elif told is not None:
            self._shown.note(told)

    async def after(self, error: WorldAgentError) -> None:
        """Say how to go on after an error that is shown."""
        with suppress(WorldAgentError):  # a database that is down is told by the next turn
            if isinstance(error, RoleRequired | RoleChanged | RoleKeyMismatch):
                await self._talk.look()
                self._hint(_ROLE_HINT)
            elif isinstance(error, ThreadPaused | AnswerInvalid | AlreadyAnswered | UnknownPause | NothingToResume):
                await self.pick_up()  # another process may have been quicker
            elif error.turn_id is not None:
                state = await self._talk.look()
                if error.retryable and state is not None and state.resumable:
                    self._hint("/resume goes on with the same turn.")

    def drain(self) -> bool:
        """Let the turn that is under way stop at its next step; False if there is none."""
        if not self._running:
            return False
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
            self._shown.note("stopping at the next step")
        return True

    async def aclose(self) -> None:
        """Wait for the end of draining."""
        if self._draining is not None:
            await asyncio.gather(self._draining, return_exceptions=True)

    def _hint(self, text: str) -> None:
        if self._shown.interactive:
            self._shown.note(text)

    async def _drain(self) -> None:
        await (await self._talk.agent()).drain(DRAIN)

    async def _follow(self, stream: TurnStream, entered: Callable[[], None] | None = None) -> None:
        self._running = True
        try:
            async with stream:
                if entered is not None:
                    entered()
                async for event in stream:
                    self._shown.event(event)
        except asyncio.CancelledError:
            self._talk.stands("cancelled" if self._draining is None else "stopped")
            raise
        finally:
            self._running = False
        turn = stream.turn
        if turn.status == "cancelled" and self._draining is not None:
            turn = replace(turn, status="stopped")  # what is cut off in draining can go on later, too
        self._talk.stands(turn.status, turn.pauses)
        waiting = self._talk.waiting
        self._shown.ended(turn if waiting is None else replace(turn, pauses=waiting.pauses))


__all__ = ["Turns"]
