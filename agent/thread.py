"""A thread: an immutable, cheap handle on a scope. `run` and `stream` take its requests, which can hold a role (R8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast, overload

from ..core import ROOT, Scope, Tier, check_id
from ..core.checks import check_texts
from ..core.errors import InvalidArgument, UnknownSkill
from ..core.events import Deltas
from ..core.pauses import Pause
from ..core.scope import MEMBER_ACCOUNT
from ..core.validation import check_line
from ..graphs import SKILL, Composed, TurnRequest
from ..harness.inside import Inside, Origin
from ..harness.worker import REQUEST
from ..memory import Message, thread_key
from ..memory.attachments import AttachmentSource, check_count, check_source
from ..memory.conversation import MAX_NAME_CHARACTERS
from ..memory.entries.recall import Passage, context_json
from ..memory.examples import Feedback
from ..memory.inbox import InboxRow
from ..role_resolution import Role
from ..role_resolution.role import check_role, refuses_texts
from .choices import (
    TurnModel,
    check_example,
    check_guard,
    check_said,
    check_skills,
    check_unattended,
    output_type,
    turn_models,
)
from .requests import Edit, Replay, Request, Resume, Say, Scheduled, Skill, StartOptions, Task, TurnOptions
from .roles import ThreadRole
from .runtime import Resumption, TurnRunner
from .runtime.branches import Edited
from .runtime.pending import PendingMessage
from .runtime.runner import TurnStream
from .runtime.speaking import hand_over
from .settings import UNSET, Unset
from .starts import read_start, request_of, start_of, start_to_json
from .threads import ThreadState
from .threads.handing import Shown, hand
from .turns import Trigger, Turn

if TYPE_CHECKING:
    from ..graphs.nesting import NodeView


M = TypeVar("M", bound=Callable[..., Any])
P = ParamSpec("P")


def _run(kind: Callable[P, Request]) -> Callable[Concatenate[Thread, P], Coroutine[Any, Any, Turn]]:
    """Return the method that runs a request of this kind, and takes its fields as arguments."""

    def run(self: Thread, /, *given: P.args, **named: P.kwargs) -> Coroutine[Any, Any, Turn]:
        return self.run(kind(*given, **named))  # not awaited here, where a frame would keep the role until the end

    return _described(run, kind, "Coroutine[Any, Any, Turn]")


def _stream(kind: Callable[P, Request]) -> Callable[Concatenate[Thread, P], TurnStream]:
    """Return the method that streams a request of this kind, and takes its fields as arguments."""

    def stream(self: Thread, /, *given: P.args, **named: P.kwargs) -> TurnStream:
        return self.stream(kind(*given, **named))

    return _described(stream, kind, "TurnStream")


def _streamed(kind: Callable[P, Request]) -> Callable[[Callable[[Thread, Request], TurnStream]], _Streams[P]]:
    """Let a method that takes a request also take the fields of one kind as arguments."""

    def taking(method: Any) -> Any:
        @wraps(method)
        def stream(self: Thread, *given: Any, **named: Any) -> TurnStream:
            request = given[0] if given and isinstance(given[0], Request) and not named else kind(*given, **named)
            return cast("TurnStream", method(self, request))

        return _described(stream, kind, "TurnStream", doc=method.__doc__)

    return taking


class _StreamMethod(Protocol[P]):
    @overload
    def __call__(self, request: Request, /) -> TurnStream: ...
    @overload
    def __call__(self, *given: P.args, **named: P.kwargs) -> TurnStream: ...


class _Streams(Protocol[P]):
    def __get__(self, thread: Thread, owner: type[Thread]) -> _StreamMethod[P]: ...


def _described(method: M, kind: Callable[..., Request], returns: str, doc: str | None = None) -> M:
    """Give a method the signature and the text that `help` shows."""
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    shown = Signature([own, *signature(kind).parameters.values()], return_annotation=returns)
    vars(method).update(__signature__=shown)
    method.__doc__ = doc or kind.__doc__
    return method


@refuses_texts
@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation of an agent, as one account sees it; get it from `agent.thread(...)`.

    Attributes:
        scope: Workspace, account, channel and thread.
        name: The display name of the person who speaks; None if none was given.
        tiers: The tiers whose stored roles its turns have; None is all of them.
    """

    _runner: TurnRunner = field(repr=False)
    scope: Scope
    name: str | None = None
    tiers: tuple[Tier, ...] | None = None
    _on_behalf_of: str = field(default=ROOT, repr=False, kw_only=True)
    _sender: str | None = field(default=None, repr=False, kw_only=True)
    _marks: tuple[str, ...] = field(default=(), repr=False, kw_only=True)
    _origin: Origin | None = field(default=None, repr=False, kw_only=True)
    _view: NodeView | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.name is not None:
            check_line("name", self.name, MAX_NAME_CHARACTERS, remedy="shorten it, or leave it out")

    @property
    def role(self) -> ThreadRole:
        """The thread's own role: `thread.role.set(Role(...))`, `thread.role.clear()`."""
        return ThreadRole(self._runner, self.scope)

    async def run(self, request: Request) -> Turn:
        """Run a turn and wait for its end, or until it waits for a person.

        Args:
            request: What it begins or continues with: `Say(text)`, `Task(shape, params)`, `Skill(name, params)`,
                `Scheduled(trigger)`, `Resume(answers)`, `Edit(text)` or `Replay()`.

        Returns:
            The turn: `done`, or `paused` if it waits for a person. `stopped` if the agent was drained meanwhile.

        Raises:
            InvalidArgument: An option is invalid, an input is missing, unknown or does not fit its type, or `example`
                is True while the setting `examples` is `off`.
            ThreadPaused: Another turn of the thread waits for a person, or was stopped.
            ThreadBusy: Another turn owned the thread for longer than the setting `thread_wait`.
            TurnTimeout: The turn took longer than the setting `turn_timeout`; `resume` continues it.
            RoleSourceUnavailable, RoleSourceInvalid, RoleTooLong, RoleInvalid: Nothing has reached a model or the log.
            AttachmentInvalid, AttachmentNotTaken, AttachmentMissing: Nothing has reached a model or the log.
            ModelNotConfigured: The turn's model cannot be used; nothing has reached a model or the log.
            KeyReused: The key was used on this thread for another request.
            UnknownShape, UnknownWorker, UnknownSkill, ParamsInvalid: The text names the invalid value of a task or a
                skill; nothing was written.
            HostError, OutputInvalid: The model failed; the person's message stays in the log.
            ResultInvalid, TaskFailed: The shape of a task or a skill failed.
            NothingToResume: The thread has no turn that can be resumed.
            UnknownPause, AlreadyAnswered, AnswerInvalid: An answer is not accepted; none was stored.
            GraphChanged: Something that the turn to resume began with is gone; no answer was stored.
            RoleRequired, RoleChanged, RoleKeyMismatch: The role is not the one that the turn to resume began with; no
                model was called, and no answer was stored. An answer from another account than the turn's is stored
                without the role, which only the turn's own account can pass, and waits for that account's `resume`.
            UnknownMessage, NameTaken: The thread has no message `at`; the thread `to` or `keep_as` exists.
        """
        opened = self._open(request, "none")
        del request  # it holds the call's role, which the turn drops once it is resolved
        async with opened as stream:
            return await stream.wait()

    @_streamed(Say)
    def stream(self, request: Request) -> TurnStream:
        """Follow a turn's events: `async with thread.stream(...) as stream`.

        Its argument is a request, or those of `Say`: `thread.stream("Hello")` is `thread.stream(Say("Hello"))`.

        Returns:
            The stream. The turn begins or continues when its block is entered; most errors of `run` are raised then,
            or while iterating. Further outputs are in the last event, `turn_ended`.

        Raises:
            InvalidArgument, AttachmentInvalid, RoleInvalid, ModelNotConfigured: An option is invalid.
        """
        return self._open(request, "all" if request.subagents else "answer")

    converse = _run(Say)
    """Send a message and wait for the answer: `run(Say(...))`."""
    task = _run(Task)
    """Dispatch one task to a shape: `run(Task(...))`."""
    run_skill = _run(Skill)
    """Run a skill: `run(Skill(...))`."""
    run_scheduled = _run(Scheduled)
    """Run a turn because a schedule fired: `run(Scheduled(...))`."""
    resume = _run(Resume)
    """Resume the thread's turn: `run(Resume(...))`."""
    edit = _run(Edit)
    """Edit a message of this thread, and run the turn again: `run(Edit(...))`."""
    replay = _run(Replay)
    """Run a turn again on a new thread: `run(Replay(...))`."""

    stream_task = _stream(Task)
    """Like `task`, as a stream of events: `stream(Task(...))`."""
    stream_skill = _stream(Skill)
    """Like `run_skill`, as a stream of events: `stream(Skill(...))`."""
    stream_scheduled = _stream(Scheduled)
    """Like `run_scheduled`, as a stream of events: `stream(Scheduled(...))`."""
    stream_resume = _stream(Resume)
    """Like `resume`, as a stream of events: `stream(Resume(...))`."""
    stream_edit = _stream(Edit)
    """Like `edit`, as a stream of events: `stream(Edit(...))`."""
    stream_replay = _stream(Replay)
    """Like `replay`, as a stream of events: `stream(Replay(...))`."""

    async def repeats(self, key: str) -> bool:
        """Whether a start with this key returns an existing turn, which is over, waits or runs, and starts none.

        This is for a host that limits how many turns it runs. A start with the key of a turn that was interrupted, was
        stopped or failed with a retryable error would resume that turn.

        Args:
            key: The key, as for `converse`.

        Raises:
            InvalidArgument: The key is invalid.
        """
        return await self._runner.repeats(self.scope, key)

    async def state(self) -> ThreadState | None:
        """Return the thread's state, which includes its newest turn's status; None if it has no turn."""
        return await self._runner.parts.threads.find(self.scope)

    async def rename(self, title: str | None) -> str | None:
        """Set the thread's title for lists. Nothing else changes, and no model sees the title.

        A fork begins with the title that was set on its origin, and an export includes it.

        Args:
            title: 1 to 120 printable characters in one line; None restores the first words of the first message.

        Returns:
            The thread's title now; None if none is set and the thread has no message.

        Raises:
            InvalidArgument: `title` is invalid, or the thread has no turn yet and is not a fork.
        """
        return await self._runner.parts.threads.rename(self.scope, title)

    async def archive(self, archived: bool = True) -> None:
        """Hide the thread in lists until its next turn, which a new message or an edit begins. Nothing is removed.

        With `Memory(distil_after=...)` the thread is distilled soon, without waiting until it has been quiet. Resuming
        a turn that waits leaves the thread archived.

        Args:
            archived: False shows the thread again.

        Raises:
            InvalidArgument: The thread has no turn yet, or `archived` is not a bool.
        """
        await self._runner.parts.threads.archive(self.scope, archived)

    async def hand_over(self, member: str, *, messages: Shown = "none") -> None:
        """Let a member of the workspace speak in this conversation from the next turn on (A21).

        It answers with its soul as identity and calls its own functions, as far as both it and this conversation may.
        Roles compose as ever, and approvals stay those of this account. It is shown no summaries, no message above its
        clearance, and of the account's memory what its clearance admits. Reports of work in the background that exceed
        its clearance wait until the conversation is handed back. If the member is terminated, the World Agent answers
        again. A fork and an edit keep who speaks; a replay and an import are the World Agent's.

        Args:
            member: The member's id.
            messages: What it is shown of the conversation so far: `none`, `all`, or this many of the last messages and
                answers, with the results between them.

        Raises:
            ThreadBusy: A turn runs.
            ThreadPaused: A turn waits for a person, was stopped or was interrupted.
            UnknownMember: The workspace has no such member, or it is terminated.
            LifecycleError: It is a draft, or suspended.
            InvalidArgument: The thread has no turn yet and is not a fork, is a member's, or `messages` is invalid.
        """
        await hand_over(self._runner.parts, self.scope, member, messages)
        self._runner.pending.wake(self.scope)

    async def hand_back(self) -> None:
        """Let the World Agent speak again from the next turn on. It is shown the whole conversation.

        Raises:
            ThreadBusy, ThreadPaused, InvalidArgument: As for `hand_over`.
        """
        await hand(self._runner.parts.stores, self.scope, None)
        self._runner.pending.wake(self.scope)

    async def pauses(self) -> tuple[Pause, ...]:
        """Return the pauses of the thread's turn; empty if there are none.

        A pause whose `answered` is true has its answer. It stays in the list until a run uses the answer. If the
        process is killed after the answer, that is the next `resume()`.
        """
        return await self._runner.parts.threads.pauses(self.scope)

    async def cancel(self) -> bool:
        """Cancel the thread's turn, in whatever process it runs or while it waits.

        Returns:
            False if there is none to cancel.
        """
        return await self._runner.cancel(self.scope)

    # --- messages beside a turn -------------------------------------------------------------------------------------

    async def steer(self, text: str, *, begin: bool = False, key: str | None = None) -> PendingMessage:
        """Say something that the running turn reads before its next thought (T15).

        It is on the disk when this returns. Calls under way end as they would. A turn that waits for a person reads it
        when it resumes. If the turn ends first, it begins the next turn, or is read as that begins. It carries no role.

        Args:
            text: The message.
            begin: Whether it begins a turn if none runs or waits. That turn continues after this returns.
            key: Makes a repeat the same message: 1 to 200 printable characters, unique in this thread.

        Raises:
            NothingToSteer: No turn of the thread runs or waits, and `begin` is False.
            NotSteerable: The turn is of another account or member, or runs code without a model's loop.
            KeyReused: The key was used on this thread for another message to a running turn.
            InvalidArgument: The text or the key is invalid, or 1000 messages wait already.
        """
        return await self._runner.pending.steer(self.scope, self._start(Say(text)), key=_key(key), begin=begin)

    async def queue(
        self,
        request: str | Say | Task | Skill,
        *,
        role: Role | Unset | None = UNSET,
        key: str | None = None,
        interrupt: bool = False,
    ) -> PendingMessage:
        """Say something for after the running turn: it begins a turn of its own, after those queued before (T16).

        It is on the disk when this returns. On a thread where nothing runs or waits its turn begins at once; a turn
        that waits for a person, was stopped, or failed with a retryable error keeps it waiting. Its turn pauses and
        notifies where a person must be asked, unless `unattended` of the request says otherwise.

        Args:
            request: A text, or a request without attachments, context or output.
            role: The role of its turn, which only this process keeps: where it is gone, the message waits with
                `waits_for` as `role`, and later ones behind it, until `release` or `withdraw`. So it is with the
                thread's own role, unless this is None.
            key: Makes a repeat the same message: 1 to 200 printable characters, unique in this thread.
            interrupt: Whether it comes before all others, and the running turn is cancelled for it as with
                `Say(interrupt=True)`.

        Raises:
            InvalidArgument: An option is invalid or cannot be stored, or 1000 messages wait already.
            ModelNotConfigured: A model of the request does not exist.
            KeyReused: The key was used on this thread for another queued message.
            RoleInvalid: The role is invalid.
            UnknownShape, UnknownWorker, UnknownSkill, ParamsInvalid: The task or the skill is invalid.
        """
        runner = self._runner
        given = Say(request) if isinstance(request, str) else request
        if isinstance(given, Say | Task | Skill):
            role, key = given.role or role, given.key if key is None else key
            given = replace(given, role=None)
        if isinstance(given, Say):
            interrupt, given = interrupt or given.interrupt, replace(given, interrupt=False)
        putting = runner.pending.queue(self.scope, self._start(given), key=_key(key), role=role, first=interrupt)
        del given, request, role
        return await putting

    async def queued(self) -> tuple[PendingMessage, ...]:
        """Return the messages that wait on this thread, in the order in which they are read: steering comes first."""
        return await self._runner.pending.queued(self.scope)

    async def pending(self, message_id: str) -> PendingMessage:
        """Return a message that came beside a turn, waiting or not: its `turn_id` is the turn that it began or steered.

        Args:
            message_id: The id, from `steer`, `queue` or `queued`.

        Raises:
            UnknownMessage: The thread has no such message, or it was withdrawn.
        """
        return await self._runner.pending.find(self.scope, _checked_id(message_id))

    async def withdraw(self, message_id: str) -> bool:
        """Delete a message that waits; False if it was read, or there is none of this id."""
        return await self._runner.pending.withdraw(self.scope, _checked_id(message_id))

    async def reorder(self, message_ids: Sequence[str]) -> None:
        """Put the queued messages in this order; those that are not named come after them.

        Raises:
            UnknownMessage: One of them is not queued.
            InvalidArgument: An id is there twice.
        """
        await self._runner.pending.reorder(self.scope, message_ids)

    async def release(self, message_id: str, *, role: Role | None = None) -> PendingMessage:
        """Let a message begin its turn that waits for its role, or that could not begin.

        Args:
            message_id: Its id.
            role: The role of its turn; None is none besides the stored ones.

        Raises:
            UnknownMessage: The thread has no such message.
            RoleInvalid: The role is invalid.
        """
        return await self._runner.pending.release(self.scope, _checked_id(message_id), role)

    def _start(self, request: Say | Task | Skill) -> dict[str, Any]:
        """What is stored of a message that begins a turn later, or that a running turn reads; see `begin_pending`."""
        models: tuple[str, ...] = ()
        if isinstance(request, Say | Task | Skill):
            models = turn_models(request.model)
            self._runner.parts.engine.check_model(models, who="the turn")
            request = replace(request, model=None)
        start, inside = start_of(request), Inside.now()
        thread = self
        if inside is not None and self._on_behalf_of == ROOT:
            thread = replace(self, _on_behalf_of=inside.on_behalf_of)
        unattended = request.unattended if request.unattended is not None else "pause"
        asked = thread._request_of(request_of(start, unattended=unattended, guard=request.guard))
        origin = None if inside is None else inside.origin
        marks = {*asked.body.get("untrusted", ()), *(() if origin is None else origin.marks)}
        return {
            "start": start_to_json(start),
            "name": thread.name,
            "tiers": None if thread.tiers is None else [tier.value for tier in thread.tiers],
            "on_behalf_of": thread._on_behalf_of,
            "sender": thread._sender,
            "marks": sorted(marks),
            "unattended": unattended,
            "guard": True if asked.guard else request.guard,
            "model": [*models],
            "origin": None if origin is None else origin.to_json(),
        }

    async def history(self, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        """Return a page of the conversation, oldest first.

        Args:
            before: A message's id; the page ends just before it. None is the newest page.
            limit: How many messages, 1 to 1000.

        Raises:
            UnknownMessage: The thread has no message `before`.
            InvalidArgument: `before` is not a text, or `limit` is out of bounds.
        """
        if before is not None:
            check_texts(before=before)
        stores = self._runner.parts.stores
        head = (await stores.position(thread_key(self.scope))).head
        return await stores.log.history(head, before=before, limit=limit)

    async def keep(self, message_id: str) -> None:
        """Let the model see a message word for word, however long the thread becomes. Repeating the call is harmless.

        Args:
            message_id: The id, from `history`, of a message, an answer, a result or a schedule.

        Raises:
            UnknownMessage: The thread has no such message.
            InvalidArgument: The message is of another kind, or the thread already keeps 100 messages.
        """
        parts = self._runner.parts
        found = await parts.branching.find(self.scope, _checked_id(message_id))
        await parts.stores.kept.keep(thread_key(self.scope), found.id, found.kind)

    async def unkeep(self, message_id: str) -> bool:
        """Let the next summary cover a message again, like any other.

        Returns:
            False if it was not kept.
        """
        return await self._runner.parts.stores.kept.unkeep(thread_key(self.scope), _checked_id(message_id))

    async def kept(self) -> tuple[Message, ...]:
        """Return the kept messages, oldest first."""
        stores, key = self._runner.parts.stores, thread_key(self.scope)
        head = (await stores.position(key)).head
        return () if head is None else await stores.log.some(head, await stores.kept.of(key))

    async def feedback(self, turn_id: str, feedback: Feedback, *, note: str | None = None) -> None:
        """Store what a person thinks of a turn of this thread, in place of any earlier feedback.

        The examples of the turn carry it, so that a metric can use it; see `agent.examples`. A turn without examples
        can have feedback too. What a member of a society did in the turn has it, too, and its trust follows (A8).

        Args:
            turn_id: The turn's id.
            feedback: `"good"` or `"bad"`.
            note: Why, 1 to 2000 characters.

        Raises:
            UnknownTurn: No turn with this id has run on this thread.
            InvalidArgument: `feedback` or `note` is invalid.
        """
        parts = self._runner.parts
        await parts.stores.examples.rate(thread_key(self.scope), turn_id, feedback, note)
        for note_it in parts.hooks.rated:
            await note_it(turn_id, feedback)

    async def fork(self, *, at: str | None = None, to: str | None = None) -> Self:
        """Create a thread that continues from a message of this one. It costs one row, however long the past is.

        The new thread does not take over the role of this thread.

        Args:
            at: The message's id, from `history`; None is the newest.
            to: The new thread's id; None makes one from this thread's id and a number.

        Returns:
            The new thread, for the same account and channel.

        Raises:
            UnknownMessage: The thread has no message `at`.
            InvalidArgument: The thread has no message yet, or `to` is not a valid id.
            NameTaken, ThreadBusy: The thread `to` exists, or another call is creating it.
            LimitReached: The account, or the workspace, begins too many threads today.
        """
        return replace(self, scope=await self._runner.parts.branching.fork(self.scope, at=at, to=to))

    # --- what the runner gets of a request --------------------------------------------------------------------------

    def _open(self, asked: Request, deltas: Deltas) -> TurnStream:
        """Check a request, and return the stream that begins or resumes its turn once it is entered."""
        runner = self._runner
        match asked:
            case Resume():
                how = _resumption(asked, self._view)
                return runner.resume(self.scope, asked.answers or {}, how, deltas=deltas, detach=asked.detach)
            case Replay():
                turn_models(asked.model)
                self._kept(asked)
                return runner.replay(self.scope, asked, deltas=deltas)
            case Edit():
                edited = Edited(asked.at, asked.keep_as)
                return runner.begin(self._edited(asked), asked.role, deltas=deltas, edited=edited)
            case StartOptions(role=role, key=key, detach=detach):
                request, interrupt = self._request_of(asked), isinstance(asked, Say) and asked.interrupt
                return runner.begin(request, role, deltas=deltas, detach=detach, key=key, interrupt=interrupt)
            case _:
                raise InvalidArgument(
                    f"`request` must be a request, got a {type(asked).__name__}",
                    remedy="pass Say(text), or another class of worldagent.agent such as Task or Resume",
                )

    def _request_of(self, asked: StartOptions) -> TurnRequest:
        """Return what the graph gets of a start: its checked options, for whom it runs, and what it began with."""
        parts = self._runner.parts
        match asked:
            case Say():
                request = self._said(asked)
            case Task():
                request = self._task(asked)
            case Skill():
                request = self._skill(asked)
            case Scheduled():
                request = self._scheduled(asked)
            case _:
                raise AssertionError(f"no turn starts with {type(asked).__name__}")
        self._check_account()
        given, hooks = asked.unattended, parts.hooks
        if given is None and self._on_behalf_of != ROOT:
            given = "pause"
        marks = sorted({*self._marks, *(mark for of in hooks.marks for mark in of(self._on_behalf_of))})
        settings, scheduled = parts.settings, isinstance(asked, Scheduled)
        unattended = check_unattended(given, settings.unattended, scheduled=scheduled)
        guard = check_guard(asked.guard, parts.profile.guard, settings.guard, unattended=unattended is not None)
        body = {**request.body, **({"untrusted": marks} if marks else {}), **({"guard": True} if guard else {})}
        return replace(
            request,
            body=body,
            model=turn_models(asked.model),
            unattended=unattended,
            tiers=self.tiers,
            example=self._kept(asked),
            origin=self._origin,
            on_behalf_of=self._on_behalf_of,
            sender=self._sender,
            view=self._view,
        )

    def _check_account(self) -> None:
        """Refuse a turn that has the account of a member, and with it the member's memory, and does not run for it.

        A host that lets clients choose the account would let them read what members know.
        """
        account, inside = self.scope.account or "", Inside.now()
        for_member = self._on_behalf_of != ROOT or (inside is not None and inside.on_behalf_of != ROOT)
        if account.startswith(MEMBER_ACCOUNT) and not for_member:
            raise InvalidArgument(
                f"{account!r} is the account of a member, and this turn does not run for the member",
                remedy="use another account; to ask a member, use its `respond()` or send it a message",
            )

    def _kept(self, asked: TurnOptions) -> bool:
        return check_example(asked.example, self._runner.parts.settings.examples)

    def _message(self, text: str, model: TurnModel) -> TurnRequest:
        check_said(text)
        return TurnRequest("message", self.scope, self._named({"text": text}), model=turn_models(model))

    def _said(self, asked: Say) -> TurnRequest:
        request, wanted = self._message(asked.text, asked.model), output_type(asked.output)
        prompt = self._passages(asked.context)
        if wanted is not None:
            # The schema as one text: each later turn reads the message again and needs no object for each part of it.
            # Its keys stay in their order, in which a model answers: a reason before what follows from it.
            schema = json.dumps(wanted.json_schema(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            request = replace(request, body={**request.body, "output": schema})
        request = replace(request, attached=_checked(asked.attachments), output=wanted, prompt=prompt)
        return self._with_inputs(request, asked.inputs)

    def _edited(self, asked: Edit) -> TurnRequest:
        request = replace(self._message(asked.text, asked.model), example=self._kept(asked))
        return request if asked.inputs is None else self._with_inputs(request, asked.inputs)

    def _task(self, asked: Task) -> TurnRequest:
        prompt, work = self._passages(asked.context), self._runner.parts.engine.work(asked.shape, asked.params)
        body = self._named({"shape": asked.shape, "params": work["params"]})
        return TurnRequest("task", self.scope, body, work, prompt, _checked(asked.attachments))

    def _skill(self, asked: Skill) -> TurnRequest:
        parts, skill, params = self._runner.parts, asked.skill, asked.params
        check_skills(parts.profile)
        if params is not None and not isinstance(params, Mapping):
            raise InvalidArgument(
                f"`params` must be a mapping, got a {type(params).__name__}", remedy='pass {"request": TEXT}, or fields'
            )
        if isinstance(skill, str):
            return self._package(skill, params or {})
        if not isinstance(skill, Composed) or skill.shape == SKILL:
            raise InvalidArgument(
                f"`skill` must be a name or a Composed, got a {type(skill).__name__}",
                remedy="pass the name of a skill, or Composed(prompt, shape=..., params=...)",
            )
        work = parts.engine.work(skill.shape, {**skill.params, **(params or {})})
        body = self._named({"skill": skill.name, "shape": skill.shape, "params": work["params"]})
        return TurnRequest("skill", self.scope, body, work, skill.prompt)

    def _package(self, name: str, params: Mapping[str, Any]) -> TurnRequest:
        engine, given = self._runner.parts.engine, dict(params)
        if SKILL not in engine.services.shapes.shapes:
            raise UnknownSkill(
                f"there is no skill {name[:100]!r}: the agent has none",
                remedy="pass WorldAgent(skills=[FOLDER]), and see `worldagent skills list`",
            )
        given = given if given.keys() == {REQUEST} else {"input": given}
        work = engine.work(SKILL, {"name": name, **given})
        return TurnRequest(
            "skill", self.scope, self._named({"skill": name, "shape": SKILL, "params": work["params"]}), work
        )

    def _scheduled(self, asked: Scheduled) -> TurnRequest:
        trigger = asked.trigger
        if not isinstance(trigger, Trigger):
            raise InvalidArgument(
                f"`trigger` must be a Trigger, got a {type(trigger).__name__}",
                remedy="pass Trigger(schedule=..., fired_at=..., payload=...)",
            )
        fired = trigger.fired_at.isoformat()
        body = {"schedule": trigger.schedule, "fired_at": fired, "payload": dict(trigger.payload)}
        return self._with_inputs(TurnRequest("schedule", self.scope, body), asked.inputs)

    def _with_inputs(self, request: TurnRequest, inputs: Mapping[str, Any] | None) -> TurnRequest:
        converse = self._runner.parts.engine.converse
        if not converse.inputs and inputs is None:
            return request
        checked = converse.checked_inputs(inputs)
        body = {**request.body, "inputs": checked} if checked or inputs else request.body
        return replace(request, body=body, filled=converse.changing - (inputs or {}).keys())

    def _named(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Add the speaker's display name to the body of a message or task."""
        return dict(body) if self.name is None else {**body, "name": self.name}

    def _passages(self, context: Sequence[str | Passage]) -> str | None:
        """The passages of a message or a task, as JSON."""
        if not context:
            return None
        passages = context_json(context)
        if self._runner.parts.engine.services.recall is None:
            raise InvalidArgument(
                "`context` needs memory, and this agent has none", remedy="create the agent with memory=Memory()"
            )
        return passages


def begin_pending(runner: TurnRunner, row: InboxRow, key: str, role: Role | None) -> TurnStream:
    """Return the stream that begins the turn of a message of an inbox, as `Thread.queue` stored it."""
    stored = row.start
    tiers = None if stored["tiers"] is None else tuple(map(Tier, stored["tiers"]))
    thread = Thread(
        runner,
        row.scope,
        stored["name"],
        tiers,
        _on_behalf_of=stored["on_behalf_of"],
        _sender=stored["sender"],
        _marks=tuple(stored["marks"]),
        _origin=Origin.read(stored["origin"]),
    )
    options = {name: stored[name] for name in ("unattended", "guard", "model")}
    request = thread._request_of(request_of(read_start(stored["start"]), **options))
    request = replace(request, reports=stored.get("reports"))
    return runner.begin(request, role, deltas="answer", detach=True, key=key, inbox=row.id)


def as_member(thread: Thread, member: str, *, sender: str | None = None, marks: Sequence[str] = ()) -> Thread:
    """Return a handle whose turns run for a member of the workspace. Only the host's own code can make one.

    The member is the caller of the turns' calls, which a model has influenced from the start. Its worker has the
    member's id: its policy and ceiling narrow all calls of its turns. A turn that would ask a person pauses and
    notifies them, unless its `unattended` says otherwise. A turn that is resumed, by anyone, keeps the member that it
    began with. Edits and replays are a person's: their turns run for no member.

    Args:
        thread: The member's thread.
        member: The member's id, which `ctx.on_behalf_of` is in the turns; `root` for a message to the World Agent.
        sender: The id of the member whose message begins the turns, or `root`. It is the message's author, and the
            turns and their messages are marked with `message:SENDER`. None if the owner or an event begins them.
        marks: The marks of the turn in which the sender wrote the message (`ctx.gate.marks`), or of the event.

    Raises:
        InvalidArgument: `member` is `root` and there is no sender, or an id is not valid.
    """
    if check_id("member", member) == ROOT and sender is None:
        raise InvalidArgument(f"no member can be {ROOT!r}", remedy="pass the id of a member, or use the thread itself")
    if sender is not None:
        marks = (*marks, f"message:{check_id('sender', sender)}")
    return replace(thread, _on_behalf_of=member, _sender=sender, _marks=tuple(sorted(set(marks))))


def with_marks(thread: Thread, marks: Sequence[str]) -> Thread:
    """Return a handle whose turns begin with these marks, as if they had read what has them."""
    return replace(thread, _marks=tuple(sorted({*thread._marks, *marks}))) if marks else thread


def within_node(thread: Thread, view: NodeView) -> Thread:
    """Return a handle whose streamed turns are shown as subgraphs of a node; see `graphs.nesting.view_of`."""
    return replace(thread, _view=view)


def _key(key: str | None) -> str | None:
    return None if key is None else check_id("key", key)


def _checked_id(message_id: object) -> str:
    if not isinstance(message_id, str):
        raise InvalidArgument("`message_id` must be a string", remedy="use an id from history() or kept()")
    return message_id


def _checked(attachments: Sequence[AttachmentSource]) -> tuple[AttachmentSource, ...]:
    if isinstance(attachments, str | bytes) or not isinstance(attachments, Sequence):
        raise InvalidArgument("`attachments` must be a list", remedy="pass attachments=[...]")
    if attachments:
        check_count(attachments)
    for source in attachments:
        check_source(source)
    return tuple(attachments)


def _resumption(asked: Resume, view: NodeView | None) -> Resumption:
    role, skill, change = asked.role, asked.skill, asked.on_role_change
    if change not in ("fail", "refresh", "pin"):
        raise InvalidArgument(f"on_role_change {change!r} is unknown", remedy="use 'fail', 'refresh' or 'pin'")
    if skill is not None and not isinstance(skill, Composed):
        raise InvalidArgument(
            f"`skill` must be a Composed, got a {type(skill).__name__}",
            remedy="pass the Composed(...) that the turn began with",
        )
    if role is not None and role is not UNSET:
        check_role(role)
    passages = context_json(asked.context) if asked.context else None
    return Resumption(role, change, passages if skill is None else skill.prompt, output_type(asked.output), view)
