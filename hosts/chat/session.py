"""A chat's state and its turns: the agent once it is loaded, the thread, its open pauses, and the messages to it.

`loop` reads the input. The results of turns go to a view, which is in `screen` or `lines`.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, Union

from ...core import ModelUsage, errors, events
from ...core.errors import AnswerInvalid, NotAnApprover, WorldAgentError
from ...core.pauses import Pause, PersonAnswer
from ...role_resolution import Role
from ..cli.agents import EMBEDDED, EMBEDDED_MODEL, open_agent, thread_of
from ..cli.options import ChatOptions
from ..cli.sources import attachments
from ..cli.turn_run import DRAIN, ROLE_REMEDIES, resume_command, with_local_remedy
from ..service.inbox import begun
from ..service.members import looking
from ..service.pauses import is_late, takes_answer_of, unanswered
from ..service.typed_answers import pause_text, read_answer

if TYPE_CHECKING:
    from ...agent import Thread, ThreadState, Turn, TurnStream, WorldAgent
    from ...agent.runtime.pending import PendingMessage
    from ...memory.attachments import AttachmentSource
    from .lines import Printer
    from .screen import Screen

STATUS_TEXTS: Final = {
    "paused": "The last turn of this thread has its answers, and was not resumed. /resume resumes it, /cancel ends it.",
    "stopped": "The last turn of this thread was stopped. /resume resumes it, /cancel ends it.",
    "cut_off": "The last turn of this thread was interrupted. /resume resumes it, a new message drops it.",
    "failed": "The last turn of this thread failed. /resume resumes it, a new message drops it.",
    "running": "A turn of this thread runs in another process. /steer TEXT says something to it, /cancel ends it.",
}
"""What a person can do about a thread's last turn, by its status."""

APPROVER_REMEDY: Final = "use /later and let an approver answer, or start the chat with --account, as one of them"
"""The remedy for an account that is not an approver."""


class Waiting:
    """The open pauses of one turn, in the order in which they are answered.

    Args:
        pauses: The pauses; one or more.
        account: The account that answers.
        answers: Earlier answers by pause id; those of other pauses are dropped.

    Attributes:
        pauses: The pauses. Those that only other accounts can answer, and those that have expired, come last.
        answers: The answers by pause id. None is sent yet.
    """

    def __init__(
        self, pauses: Sequence[Pause], account: str | None, answers: Mapping[str, PersonAnswer] | None = None
    ) -> None:
        self._account = account
        self.pauses = tuple(sorted(pauses, key=lambda pause: not takes_answer_of(account, pause)))
        kept = {pause.id for pause in self.pauses if not is_late(pause)}
        self.answers = {key: answer for key, answer in (answers or {}).items() if key in kept}

    @property
    def open(self) -> tuple[Pause, ...]:
        """The pauses without an answer."""
        return tuple(pause for pause in self.pauses if pause.id not in self.answers)

    @property
    def asks(self) -> bool:
        """Whether this account can answer one of the open pauses."""
        return any(takes_answer_of(self._account, pause) for pause in self.open)

    @property
    def place(self) -> str:
        """Which answer comes next, for a prompt."""
        return f"answer {len(self.answers) + 1}/{len(self.pauses)}" if len(self.pauses) > 1 else "answer"

    def take(self, text: str) -> Pause:
        """Take `text` as the answer to the next pause, and return that pause.

        Raises:
            NotAnApprover: Only other accounts can answer the open pauses.
            AnswerInvalid: The open pauses have expired.
            InvalidArgument: The text does not answer the pause; the remedy lists the answers.
        """
        pause = self.open[0]
        if is_late(pause):
            raise AnswerInvalid(
                "the pause has expired and accepts no answer",
                remedy="use /resume to resume without an answer; it fails with PauseExpired",
            )
        if pause.kind != "reply" and not takes_answer_of(self._account, pause):
            raise NotAnApprover(
                f"the call of {pause.function!r} waits for an approver: {', '.join(pause.approvers)}",
                remedy=APPROVER_REMEDY,
            )
        self.answers[pause.id] = read_answer(pause, text)
        return pause

    def describe(self) -> str:
        """All open pauses, for a person."""
        parts = [pause_text(pause) for pause in self.open]
        if self.answers:
            count = "1 answer is" if len(self.answers) == 1 else f"{len(self.answers)} answers are"
            parts.append(f"{count} given and not sent; /resume sends the answers so far")
        return "\n\n".join(parts)


View: TypeAlias = Union["Screen", "Printer"]
"""What shows the answers."""

_REMEDIES: Final[Mapping[type[WorldAgentError], str]] = {
    errors.NotAnApprover: APPROVER_REMEDY,
    **ROLE_REMEDIES,
    errors.RoleRequired: "set it again, or use /resume refresh to resume with the roles that are active now",
}
STATUS_ERRORS: Final = (
    errors.ThreadPaused,
    errors.AnswerInvalid,
    errors.AlreadyAnswered,
    errors.UnknownPause,
    errors.NothingToResume,
)
"""Errors after which a person needs to see the status of the thread."""
_ROLE_HINT: Final = (
    "/role TEXT sets the role of the thread, and chat --role sets one for every message. Then use /resume. "
    "/resume refresh resumes with the roles that are active now."
)


class Session:
    """One chat. Commands change it, turns read it.

    Args:
        options: The command's options.
        role: The call role that goes with every message.
        view: What shows the answers.

    Attributes:
        options: The command's options.
        role: The call role that goes with every message. It exists only here, in memory (R7). The agent holds the roles
            of threads.
        view: What shows the answers.
        model: The model for the next messages; None uses the agent's.
        attached: The attachments of the next message.
        thread_id: The thread that messages go to.
        usage: The usage of this chat's model calls.
        running: Whether this chat follows a turn.
        put: The ids of messages that this chat has put in beside a turn, and that may still begin one, oldest first.
        agent: The agent, once `open` has returned.
    """

    def __init__(self, options: ChatOptions, role: Role | None, view: View) -> None:
        self.options, self.role, self.view = options, role, view
        self.model: str | None = None
        self.attached: tuple[AttachmentSource, ...] = attachments(options.attach)
        self.thread_id = options.thread
        self.usage = ModelUsage()
        self.agent: WorldAgent
        self._waiting: dict[str, Waiting] = {}
        self._statuses: dict[str, str] = {}  # of each thread's last turn, as far as they are known
        self.running = False
        self.works = asyncio.Event()  # set while a turn runs, so that something can be said to it
        self.put: list[str] = []
        self._followed: set[str] = set()
        self._draining: asyncio.Task[None] | None = None
        self._looking = AsyncExitStack()

    # --- the agent ---

    async def open(self) -> None:
        """Open the agent.

        Raises:
            WorldAgentError: It cannot be opened.
        """
        self.agent = await open_agent(self.options, self.view, stays=True).start()
        await self._looking.enter_async_context(looking(self.agent))

    @property
    def model_name(self) -> str:
        """The model for the next messages."""
        chosen = self.model or self.options.lm
        return chosen or ("of the app" if self.options.app else self.agent.settings.lm or EMBEDDED_MODEL)

    @property
    def role_host(self) -> str | None:
        """The address or program of the role host; None is the embedded store."""
        if self.options.role_host_stdio is not None:
            return self.options.role_host_stdio.split()[0]  # its arguments may hold a key
        named = self.options.role_host or self.agent.settings.role_host
        return None if named == EMBEDDED else named

    def about(self) -> str:
        """The model or workspace, the profile, and the role host if there is one."""
        what = f"model {self.model_name}" if self.options.app is None else f"workspace {self.agent.workspace}"
        host = "" if self.role_host is None else f", roles at {self.role_host}"
        return f"{what}, profile {self.agent.profile.name}{host}"

    async def host_trouble(self) -> WorldAgentError | None:
        """The error if the role host cannot be reached; None if it can, or if there is none."""
        if self.role_host is None:
            return None
        seconds = self.agent.settings.role_timeout
        try:
            async with asyncio.timeout(seconds):
                await self.agent.roles.list()
        except WorldAgentError as error:
            return error
        except TimeoutError:
            return errors.HostUnavailable(
                f"the role host does not answer within {seconds:g} s", remedy="start it, or try later"
            )
        return None

    # --- the thread ---

    @property
    def thread(self) -> Thread:
        """The thread that messages go to."""
        return thread_of(self.agent, self.options, self.thread_id)

    @property
    def waiting(self) -> Waiting | None:
        """What the thread's turn waits for, as far as it is known."""
        return self._waiting.get(self.thread_id)

    @property
    def prompt(self) -> str:
        """The prompt: the thread, and whether an answer is awaited."""
        waiting = self.waiting
        # If each pause has an answer that could not be sent, nothing is asked, and /resume sends the answers.
        return f"{self.thread_id}> " if waiting is None or not waiting.open else f"{self.thread_id} {waiting.place}> "

    def threads_with(self, status: str) -> list[str]:
        """The threads whose last turn ended with this status in this chat."""
        return [thread for thread, found in self._statuses.items() if found == status]

    def command(self, thread_id: str) -> str:
        """The command that opens a chat on a thread, to be copied. No role is in it."""
        command = resume_command(self.options, thread_id).replace("resume", "chat --thread", 1)
        for option in ("account", "channel"):
            if (given := getattr(self.options, option)) is not None:
                command += f" --{option} {shlex.quote(given)}"
        return command

    async def look(self) -> ThreadState | None:
        """Read the status of the thread and what it waits for. Answers that are not sent are kept.

        Raises:
            WorldAgentError: The database cannot be read.
        """
        state = await self.thread.state()
        pauses = unanswered(await self.thread.pauses()) if state is not None and state.pauses else ()
        self.set_status("" if state is None else state.status, pauses)
        return state

    def set_status(self, status: str, pauses: Sequence[Pause] = ()) -> None:
        """Record the status of the thread's last turn, and what it waits for."""
        self._statuses[self.thread_id] = status
        before = self._waiting.pop(self.thread_id, None)
        if pauses:
            answers = None if before is None else before.answers
            self._waiting[self.thread_id] = Waiting(pauses, self.options.account, answers)

    async def pick_up(self) -> None:
        """Show what waits on the thread, or what can be resumed.

        Raises:
            WorldAgentError: As for `look`.
        """
        state = await self.look()
        if self.waiting is not None:
            self.view.waits(self.waiting, self.thread_id)
        elif state is not None and state.status in STATUS_TEXTS:
            self.view.note(STATUS_TEXTS[state.status])

    # --- turns ---

    async def say(self, text: str, files: Sequence[Path] = ()) -> None:
        """Send a message and show the answer.

        Args:
            text: The message.
            files: Files to send with it, besides those that are attached.

        Raises:
            ThreadPaused: The previous turn waits or was stopped; nothing was sent.
            WorldAgentError: The turn failed.
        """
        attached, self.attached = self.attached, ()
        try:
            files_sent, guard = (*attached, *files), self.options.guard
            stream = self.thread.stream(text, role=self.role, attachments=files_sent, model=self.model, guard=guard)
            named = f"attached: {', '.join(file.name for file in files)}"
            await self._follow(stream, entered=lambda: self._hint(named) if files else None)
            return
        except errors.ThreadPaused:
            self.attached = attached
        raise errors.ThreadPaused(
            f"nothing was sent: the last turn of the thread {self.thread_id!r} has not ended",
            remedy="resume it as described below, or end it with /cancel",
        )

    async def edit(self, text: str) -> None:
        """Edit the last message and show the new answer.

        Raises:
            WorldAgentError: There is nothing to edit, or the turn failed.
        """
        stream = self.thread.stream_edit(text, role=self.role, model=self.model)
        await self._follow(stream)
        self.view.note(f"the original is kept on the thread {stream.turn.kept_as!r}")

    async def answer(self, text: str) -> None:
        """Accept the answer to the next pause. The turn resumes once this account has answered all that it can.

        Raises:
            NotAnApprover: Only other accounts can answer that pause.
            InvalidArgument: The text does not answer that pause.
            WorldAgentError: As for `resume`.
        """
        waiting = self.waiting
        assert waiting is not None, "a turn waits"
        pause = waiting.take(text)
        if waiting.asks:
            self.view.taken(pause, waiting)
        else:
            await self.resume()

    async def resume(self, on_role_change: Literal["fail", "refresh"] = "fail") -> None:
        """Send the answers, resume the turn and show it.

        Raises:
            WorldAgentError: The turn cannot be resumed, or failed. Accepted answers are not asked for again.
        """
        from ...agent import UNSET  # the agent is loaded by now

        answers = {} if self.waiting is None else self.waiting.answers
        role = UNSET if self.role is None else self.role
        try:
            stream = self.thread.stream_resume(dict(answers), role=role, on_role_change=on_role_change)
            await self._follow(stream, entered=answers.clear)  # they are accepted by then
            return
        except WorldAgentError as error:
            failure = error
        if isinstance(failure, errors.AnswerInvalid | errors.NotAnApprover):
            answers.clear()  # only the error's text says which of them it was
        raise with_local_remedy(failure, _REMEDIES, refresh="use /resume refresh")

    async def _follow(self, stream: TurnStream, entered: Callable[[], None] = lambda: None) -> None:
        with self._working():
            async with stream:
                entered()
                self.works.set()
                async for event in stream:
                    self._show(event)
        self._end(stream.turn)
        await self.follow_put()

    @contextmanager
    def _working(self) -> Generator[None]:
        self.running = True
        try:
            yield
        except asyncio.CancelledError:
            self.set_status("cancelled" if self._draining is None else "stopped")
            raise
        finally:
            self.running = False
            self.works.clear()

    def _show(self, event: events.TurnEvent) -> None:
        self._followed.add(event.turn_id)
        if isinstance(event, events.Usage):
            sent, received = event.input_tokens, event.output_tokens
            self.usage += ModelUsage(calls=1, input_tokens=sent, output_tokens=received, cost=event.cost)
        self.view.event(event)

    def _end(self, turn: Turn) -> None:
        if turn.status == "cancelled" and self._draining is not None:
            turn = replace(turn, status="stopped")  # a turn that draining interrupts can be resumed, too
        self.set_status(turn.status, turn.pauses)
        self.view.ended(turn if self.waiting is None else replace(turn, pauses=self.waiting.pauses))

    # --- messages beside a turn ---

    async def steer(self, text: str) -> PendingMessage:
        """Say something that the turn reads before its next step; after its end it begins the next turn.

        Raises:
            NotSteerable: The turn is of another account, or runs code that reads no messages.
            WorldAgentError: As for `Thread.steer`.
        """
        try:
            message = await self.thread.steer(text)
        except errors.NothingToSteer:  # it has ended in this moment
            if not self.running:
                raise
            return await self.queue(text)
        self.put.append(message.id)
        return message

    async def queue(self, text: str, *, interrupt: bool = False) -> PendingMessage:
        """Say something for after the turn.

        Args:
            text: The message.
            interrupt: Whether the turn is cancelled for it.

        Raises:
            WorldAgentError: As for `Thread.queue`.
        """
        from ...agent import UNSET, Say  # the agent is loaded by now

        said = Say(text, model=self.model, guard=self.options.guard)
        role = UNSET if self.role is None else self.role
        message = await self.thread.queue(said, role=role, interrupt=interrupt)
        self.put.append(message.id)
        return message

    async def follow_put(self) -> None:
        """Show the turns that messages of this chat begin, one after the other, as long as one can begin.

        Raises:
            WorldAgentError: A turn failed.
        """
        while self.put and self.waiting is None and self._draining is None:
            with self._working():
                found = await begun(self.thread, self.put, self._followed)
            if found is None or found.turn_id is None:
                return
            self.view.next(f"{self.thread_id}> {found.text}")
            await self._follow_begun(found.turn_id)

    async def _follow_begun(self, turn_id: str) -> None:
        last: events.TurnEvent | None = None
        try:
            with self._working():
                self.works.set()
                async for last in self.agent.events(turn_id):
                    self._show(last)
        except asyncio.CancelledError:
            if self._draining is None:
                await self.thread.cancel()
            raise
        pauses = unanswered(await self.thread.pauses())
        if not isinstance(last, events.TurnEnded):
            await self.pick_up()
        elif last.status == "failed":
            self.set_status("failed")
            self.view.failed(last.code or "internal", "the turn of the message failed", "use /resume, or say it again")
        else:
            from ...agent import Turn

            thread = self.thread_id
            self._end(Turn(id=turn_id, thread=thread, status=last.status, text=last.text or "", pauses=pauses))

    async def advise(self, error: WorldAgentError) -> None:
        """Show what the person can do after an error."""
        with suppress(WorldAgentError):  # the next turn reports a database that is down
            if isinstance(error, errors.RoleRequired | errors.RoleChanged | errors.RoleKeyMismatch):
                await self.look()
                self._hint(_ROLE_HINT)
            elif isinstance(error, STATUS_ERRORS):
                await self.pick_up()  # another process may have been quicker
            elif error.turn_id is not None:
                state = await self.look()
                if error.retryable and state is not None and state.resumable:
                    self._hint("/resume resumes the same turn.")

    def _hint(self, text: str) -> None:
        if self.view.interactive:
            self.view.note(text)

    def drain(self) -> bool:
        """Let the running turn stop at its next step; False if none runs."""
        if not self.running:
            return False
        if self._draining is None:
            self._draining = asyncio.create_task(self.agent.drain(DRAIN))
            self.view.note("stopping at the next step")
        return True

    async def aclose(self) -> None:
        """Wait for the end of draining, and close the agent if it is open."""
        if self._draining is not None:
            await asyncio.gather(self._draining, return_exceptions=True)
        await self._looking.aclose()
        if hasattr(self, "agent"):
            await self.agent.aclose()
