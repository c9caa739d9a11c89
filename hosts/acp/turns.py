"""The turns of a prompt: what the thread still waits for, the message, and a person's answers to their pauses.

A pause ends a run of the turn, so that nothing runs while the client is asked. The answers resume the turn within the
same prompt. A client that is gone loses nothing: the next prompt of the session asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from acp.schema import PermissionOption, PermissionOptionKind, StopReason, ToolCallUpdate

from ...agent import UNSET, Thread, Turn, TurnStream, WorldAgent
from ...agent.threads import ThreadState
from ...core.errors import (
    InvalidArgument,
    LimitReached,
    RoleChanged,
    RoleRequired,
    ThreadPaused,
    WorldAgentError,
)
from ...core.events import TurnEnded
from ...core.pauses import (
    Answer,
    Approve,
    Happened,
    NotHappened,
    Pause,
    PersonAnswer,
    Reject,
    RunAgain,
    may_be_always,
)
from ...role_resolution import Role
from ..service.call import Refused
from ..service.inbox import begun
from ..service.pauses import is_late, one_line, shortened, takes_answer_of, unanswered, validation_errors
from ..service.typed_answers import pause_text, read_answer
from .client import Client
from .content import Prompt
from .updates import MAX_TITLE_CHARACTERS, Updates

T = TypeVar("T")

_INTERRUPTED: Final = ("stopped", "cut_off")
_RESUME: Final[tuple[str, PermissionOptionKind]] = ("Resume it", "allow_once")
_END: Final[tuple[str, PermissionOptionKind]] = ("End it", "reject_once")
_STOPPED_TEXT: Final = "The last turn of this session was interrupted. The next prompt asks whether to resume it."
_ANSWERED_TEXT: Final = "The last turn of this session has its answers. The next prompt resumes it."
_WAITING_TEXT: Final = "The next prompt asks for the answer."
_FAILED_TEXT: Final = "The turn of this message failed. Send it again, or look at the trace of the turn."
_NOT_SENT_TEXT: Final = "Your message was not sent, because the earlier turn of this session waits."
_ROLE_REMEDY: Final = (
    "choose the mode that the turn began with and prompt again, or end the turn with `worldagent threads cancel`"
)


@dataclass(slots=True, eq=False)
class Session:
    """A session of the client.

    Attributes:
        id: The id of its thread.
        mode: The mode of its next prompt.
        updates: What the client was sent of it.
        running: Whether a prompt runs.
        cancelled: Set when the client cancels the prompt.
        stream: The running turn of the prompt.
        injected: The ids of messages that came beside turns and may begin others, oldest first.
        followed: The ids of turns that the client was sent.
    """

    id: str
    mode: str
    updates: Updates
    running: bool = False
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    stream: TurnStream | None = None
    injected: list[str] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Choice:
    """An option for a person, and the answer that it stands for."""

    name: str
    kind: PermissionOptionKind
    answer: PersonAnswer

    @property
    def option(self) -> tuple[str, PermissionOptionKind]:
        """Its name and its kind."""
        return self.name, self.kind


def choices(pause: Pause) -> tuple[Choice, ...]:
    """Return the options that answer a pause; empty if only a typed answer does, or none.

    Args:
        pause: A pause that accepts an answer.
    """
    match pause.kind:
        case "approval":
            call = Approve(hash=pause.hash)
            always = may_be_always(pause)
            same, every = (Approve(always=which, hash=pause.hash) for which in ("same", "any"))
            return (
                Choice("Allow", "allow_once", call),
                *([Choice("Allow equal calls in this turn", "allow_always", same)] if always else []),
                *([Choice("Allow all calls of it in this turn", "allow_always", every)] if always else []),
                Choice("Reject", "reject_once", Reject()),
            )
        case "uncertain":
            # With a result that must be given, only a typed answer can say that the effect happened.
            told = pause.schema is None or not validation_errors(pause.schema, None)
            return (
                *([Choice("It happened", "allow_once", Happened())] if told else []),
                Choice("It did not happen", "reject_once", NotHappened()),
                Choice("Call it again", "allow_once", RunAgain()),
            )
        case "question":
            return tuple(
                Choice(one_line(shortened(option, MAX_TITLE_CHARACTERS)), "allow_once", Answer(option))
                for option in pause.options or ()
            )
        case "reply":
            return ()


class _Cancelled(Exception):
    """The client cancelled the prompt."""


class PromptRun:
    """Runs one prompt of a session.

    Args:
        agent: The agent.
        thread: The thread of the session.
        session: The session.
        client: The client.
        role: The call role of the session's mode.
        ending: Set when the process ends.
    """

    def __init__(
        self,
        agent: WorldAgent,
        thread: Thread,
        session: Session,
        client: Client,
        role: Role | None,
        ending: asyncio.Event,
    ) -> None:
        self._agent, self._thread, self._session, self._client = agent, thread, session, client
        self._updates, self._role, self._ending = session.updates, role, ending

    async def run(self, prompt: Prompt) -> StopReason:
        """Run the prompt and return why it ended.

        Raises:
            Refused: The process ends; the turn can be resumed.
            WorldAgentError: The turn failed.
        """
        try:
            return await self._injected(await self._run(prompt))
        except _Cancelled:
            failure = None
        except WorldAgentError as error:
            failure = error
        if failure is None:
            state = await self._thread.state()
            if state is not None and state.status == "paused":  # one that another process runs is not this prompt's
                await self._thread.cancel()
        if failure is None or self._session.cancelled.is_set():
            return "cancelled"
        if self._ending.is_set():
            raise _ending()
        if isinstance(failure, LimitReached):
            await self._updates.say(str(failure))
            return "max_turn_requests"
        raise _with_remedy(failure)

    async def _run(self, prompt: Prompt) -> StopReason:
        state = await self._thread.state()
        if state is not None and state.status in ("paused", *_INTERRUPTED):
            ended = await self._finish(state, prompt)
            if ended is not None:
                return ended
        self._check()
        stream = self._thread.stream(prompt.text, role=self._role, attachments=prompt.attachments)
        return await self._until_answered(stream, role=self._role)

    async def _injected(self, reason: StopReason) -> StopReason:
        """Follow the turns that messages beside the prompt begin, in order; returns why the last one ended."""
        session = self._session
        while session.injected:
            found = await self._unless_ended(begun(self._thread, session.injected, session.followed))
            if found is None or found.turn_id is None:
                break
            await self._updates.said(found.text)
            reason = await self._unless_ended(self._events(found.turn_id))
        return reason

    async def _events(self, turn_id: str) -> StopReason:
        """Follow a turn that runs without a prompt."""
        ended = "cancelled"
        async for event in self._agent.events(turn_id):
            await self._updates.event(event)
            if isinstance(event, TurnEnded):
                ended = event.status
        if ended == "paused":
            await describe(self._thread, unanswered(await self._thread.pauses()), self._updates)
        elif ended == "failed":
            await self._updates.say(_FAILED_TEXT)
        return "cancelled" if ended == "cancelled" else "end_turn"

    async def _unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something, unless the client cancels the prompt or the process ends.

        Raises:
            _Cancelled: The client cancelled the prompt; the turn that runs is cancelled.
            Refused: The process ends.
        """
        doing = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(event.wait()) for event in (self._session.cancelled, self._ending)]
        try:
            await asyncio.wait({doing, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if self._session.cancelled.is_set():
                await self._thread.cancel()
            self._check()
            return await doing
        finally:
            for each in (doing, *ends):
                each.cancel()

    async def _finish(self, state: ThreadState, prompt: Prompt) -> StopReason | None:
        """Bring the earlier turn of the thread to its end.

        Returns:
            Why the prompt ended; None if its message is still to be sent.
        """
        pauses = unanswered(await self._thread.pauses())
        typed = next(
            (pause for pause in pauses if takes_answer_of(self._thread.scope.account, pause) and not choices(pause)),
            None,
        )
        answers: Mapping[str, PersonAnswer] = {}
        if state.status != "paused":
            if not await self._wants_to_resume(state):
                await self._thread.cancel()
                return None
        elif typed is not None:
            answers = {typed.id: _typed_answer(typed, prompt)}
        else:
            answers = await self._ask(pauses)
            if not answers and not all(map(is_late, pauses)):
                await describe(self._thread, pauses, self._updates)
                raise ThreadPaused(
                    "nothing was sent, since the last turn of the session waits and cannot be answered here",
                    remedy="wait until another person or the reply continues it, or open another session",
                )
        role = self._role if "role" in state.needs else None
        reason = await self._until_answered(self._resumed(answers, role), role=role)
        over = await self._thread.state()
        if typed is not None or reason != "end_turn":
            return reason
        if over is not None and over.status == "done":
            return None
        await self._updates.say(_NOT_SENT_TEXT)
        return reason

    async def _until_answered(self, stream: TurnStream, *, role: Role | None) -> StopReason:
        """Follow a turn and let the person answer its pauses, until it ends or only a typed answer helps."""
        while True:
            turn = await self._follow(stream)
            if turn.status != "paused":
                return self._reason(turn)
            answers = await self._ask(turn.pauses)
            if not answers:
                await describe(self._thread, turn.pauses, self._updates)
                return "end_turn"
            stream = self._resumed(answers, role)

    def _resumed(self, answers: Mapping[str, PersonAnswer], role: Role | None) -> TurnStream:
        return self._thread.stream_resume(answers, role=UNSET if role is None else role)

    async def _follow(self, stream: TurnStream) -> Turn:
        self._check()
        async with stream:
            self._session.stream = stream
            try:
                if self._session.cancelled.is_set():
                    await stream.cancel()
                async for event in stream:
                    await self._updates.event(event)
            finally:
                self._session.stream = None
        self._session.followed.add(stream.turn.id)
        if stream.turn.withheld:
            await self._updates.say(f"{stream.turn.withheld.note}.")
        return stream.turn

    def _reason(self, turn: Turn) -> StopReason:
        if turn.status == "done":
            return "end_turn"
        if self._ending.is_set() and not self._session.cancelled.is_set():
            raise _ending()
        return "cancelled"

    # --- what a person decides ---

    async def _ask(self, pauses: Sequence[Pause]) -> dict[str, PersonAnswer]:
        """Let the person choose the answers to pauses that have options. Other pauses are left out."""
        answers: dict[str, PersonAnswer] = {}
        for pause in pauses:
            offered = choices(pause) if takes_answer_of(self._thread.scope.account, pause) else ()
            if not offered:
                continue
            call = await self._updates.waits(pause)
            answers[pause.id] = offered[await self._choose(call, [each.option for each in offered])].answer
            if pause.kind == "question":
                await self._updates.call(ToolCallUpdate(tool_call_id=call.tool_call_id, status="completed"))
        return answers

    async def _wants_to_resume(self, state: ThreadState) -> bool:
        call = ToolCallUpdate(
            tool_call_id=f"resume:{state.turn_id}",
            title="The last turn of this session was interrupted",
            kind="other",
            status="pending",
        )
        await self._updates.call(call)
        chosen = await self._choose(call, [_RESUME, _END])
        await self._updates.call(ToolCallUpdate(tool_call_id=call.tool_call_id, status="completed"))
        return chosen == 0

    async def _choose(self, call: ToolCallUpdate, offered: Sequence[tuple[str, PermissionOptionKind]]) -> int:
        """Let the person choose, and return the position of the choice.

        Raises:
            _Cancelled: The client cancelled the prompt.
            Refused: The process ends.
        """
        options = [
            PermissionOption(option_id=str(number), name=name, kind=kind) for number, (name, kind) in enumerate(offered)
        ]
        asking = asyncio.ensure_future(self._client.choose(self._session.id, call, options))
        ends = [asyncio.ensure_future(event.wait()) for event in (self._session.cancelled, self._ending)]
        try:
            await asyncio.wait({asking, *ends}, return_when=asyncio.FIRST_COMPLETED)
            self._check()
            chosen = asking.result()
        finally:
            for waiting in (asking, *ends):
                waiting.cancel()
        if chosen is None:
            raise _Cancelled
        return int(chosen)

    def _check(self) -> None:
        if self._session.cancelled.is_set():
            raise _Cancelled
        if self._ending.is_set():
            raise _ending()


async def show_waiting(thread: Thread, updates: Updates) -> None:
    """Show what the last turn of a thread waits for, after its history.

    Args:
        thread: The thread.
        updates: Where to show it.
    """
    state = await thread.state()
    if state is None or state.status not in ("paused", *_INTERRUPTED):
        return
    if state.status != "paused":
        await updates.say(_STOPPED_TEXT)
        return
    pauses = unanswered(await thread.pauses())
    await describe(thread, pauses, updates)
    if not pauses:
        await updates.say(_ANSWERED_TEXT)


async def describe(thread: Thread, pauses: Sequence[Pause], updates: Updates) -> None:
    """Show pauses, and how the person answers those that they can answer."""
    for pause in pauses:
        answers = takes_answer_of(thread.scope.account, pause)
        asked = answers and bool(choices(pause))
        text = pause_text(pause, answer=answers and not asked)
        await updates.say(f"{text}\n{_WAITING_TEXT}" if asked else text)


def _typed_answer(pause: Pause, prompt: Prompt) -> PersonAnswer:
    if prompt.attachments:
        raise InvalidArgument(
            "the session waits for the answer to a question, which takes no attachment",
            remedy="answer with a text, and attach it to the next prompt",
        )
    return read_answer(pause, prompt.text)


def _ending() -> Refused:
    return Refused(
        "draining", "the agent's process is ending", remedy="start it, load the session and prompt again to continue"
    )


def _with_remedy(error: WorldAgentError) -> WorldAgentError:
    if not isinstance(error, RoleRequired | RoleChanged):
        return error
    shown = type(error)(error.problem, remedy=_ROLE_REMEDY)
    shown.turn_id = error.turn_id
    return shown
