"""A thread: an immutable, cheap handle on a scope, with the four surfaces that take a role (R8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import BaseModel

from ..core import Scope
from ..core.errors import InvalidArgument
from ..core.pauses import Pause
from ..core.validation import is_text
from ..graphs import Composed, TurnRequest
from ..memory import Message, thread_key
from ..memory.attachments import AttachmentSource, check_count, check_source
from ..memory.bodies import check_name
from ..role_resolution import Role
from .choices import TurnModel, output_type, turn_models
from .choices.profiles import check_skills
from .roles import check_role
from .runtime import Edit, OnRoleChange, Replay, Resumption, TurnRunner, keep, kept, unkeep
from .stream import TurnStream
from .thread_role import ThreadRole
from .threads import ThreadState
from .turns import Trigger, Turn
from .unattended import Unattended, check_unattended
from .unset import UNSET, Unset


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation of an agent, as one account sees it; get it from `agent.thread(...)`.

    Attributes:
        scope: Workspace, account, channel and thread.
        name: How the person is called who speaks; None where nothing was said about that.
    """

    _runner: TurnRunner = field(repr=False)
    scope: Scope
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)

    @property
    def role(self) -> ThreadRole:
        """The thread's own role: `thread.role.set(Role(...))`, `thread.role.clear()`."""
        return ThreadRole(self._runner, self.scope)

    async def converse(
        self,
        text: str,
        *,
        role: Role | None = None,
        attachments: Sequence[AttachmentSource] = (),
        model: TurnModel = None,
        output: Any = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> Turn:
        """Say something and wait for the answer.

        Args:
            text: What the person says.
            role: How to go about this one turn.
            attachments: Images and files that go with it, 16 at most: `pathlib.Path`, bytes, an address as text, or
                what `agent.attachments.add()` or `.of(message)` gave.
            model: The model of this one turn, in the place of the agent's: a name from `WorldAgent(models=...)` or the
                setting `models`, or a model string; several are tried in turn where one cannot be reached.
            output: What the answer must be: a pydantic model, another type pydantic can validate, or a JSON Schema.
                `turn.result` is then a value of that type (JSON, for a schema), and `turn.text` its JSON.
            key: Makes a repeated start the same turn: 1 to 200 printable characters, of your choice, for this thread.
                Where the turn runs it is waited for, where it is over its outcome is given again, where it was cut off,
                stopped or failed in passing it goes on.
            unattended: What the turn does where a person would be asked: None asks them, `"refuse"` refuses the call,
                `"pause"` pauses and notifies, True is the setting `unattended`. The turn keeps it when it is resumed.

        Returns:
            The turn, with the answer in `text`; it may be `paused` for a person instead.

        Raises:
            ThreadPaused: A turn of the thread waits for a person, or was stopped.
            ThreadBusy: Another turn owns the thread and did not end in time.
            TurnTimeout: It took longer than the setting `turn_timeout`; `resume` goes on with it.
            RoleSourceUnavailable, RoleSourceInvalid, RoleTooLong, RoleInvalid: Nothing has reached a model or the log.
            AttachmentInvalid, AttachmentNotTaken, AttachmentMissing: Likewise.
            ModelNotConfigured: Likewise; the turn's model cannot be used.
            KeyReused: The key was used on this thread for something else.
            HostError, OutputInvalid: The model failed; the person's message stays in the log.
        """
        return await self._runner.run(
            self._mode(self._message(text, attachments, model, output), unattended), role, key=key
        )

    def stream(
        self,
        text: str,
        *,
        role: Role | None = None,
        detach: bool = False,
        attachments: Sequence[AttachmentSource] = (),
        model: TurnModel = None,
        output: Any = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> TurnStream:
        """Say something and follow the turn's events: `async with thread.stream(...) as stream`.

        Args:
            text: What the person says.
            role: How to go about this one turn.
            detach: Whether the turn goes on when the block is left; `agent.events` follows it then.
            attachments: Images and files that go with it; see `converse`.
            model: The model of this one turn; see `converse`.
            output: What the answer must be; see `converse`. It comes as one `text_delta`, once it is checked.
            key: Makes a repeated start the same turn; see `converse`. A repeat gives the turn's events from the first
                one on.
            unattended: What the turn does where a person would be asked; see `converse`.

        Raises:
            InvalidArgument, AttachmentInvalid, RoleInvalid, ModelNotConfigured: An argument does not fit. What
                `converse` raises comes while entering or iterating.
        """
        return self._runner.stream(
            self._mode(self._message(text, attachments, model, output), unattended), role, detach=detach, key=key
        )

    async def task(
        self,
        shape: str,
        params: Mapping[str, Any] | BaseModel,
        *,
        role: Role | None = None,
        attachments: Sequence[AttachmentSource] = (),
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> Turn:
        """Dispatch one task to a shape.

        Args:
            shape: The shape's key, such as `subagent`.
            params: Its params.
            role: How to go about it; it attaches to the shape's entry Signature.
            attachments: Images and files that the message of the task refers to, so that they are kept as long as it
                is; params name them by their `sha256`, and a handler opens them with `ctx.attachments`.
            model: The model of this one turn; see `converse`.
            key: Makes a repeated start the same turn; see `converse`.
            unattended: What the turn does where a person would be asked; see `converse`.

        Returns:
            The turn, with the typed result in `result`.

        Raises:
            UnknownShape, UnknownWorker, ParamsInvalid: The text names what does not fit; nothing was written.
            ResultInvalid, TaskFailed: The shape failed.
            ThreadBusy, HostError, RoleSourceUnavailable: As for `converse`.
        """
        return await self._runner.run(
            self._mode(self._task(shape, params, attachments, model), unattended), role, key=key
        )

    def stream_task(
        self,
        shape: str,
        params: Mapping[str, Any] | BaseModel,
        *,
        role: Role | None = None,
        detach: bool = False,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> TurnStream:
        """As `task`, without attachments, as a stream of events: `async with thread.stream_task(...) as stream`."""
        return self._runner.stream(
            self._mode(self._task(shape, params, (), model), unattended), role, detach=detach, key=key
        )

    async def run_skill(
        self,
        skill: Composed,
        params: Mapping[str, Any] | None = None,
        *,
        role: Role | None = None,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> Turn:
        """Run a composed skill: its shape, with its prompt added to the entry Signature's instructions.

        Args:
            skill: What the composer made. Its prompt is not stored.
            params: Params that go over the skill's own.
            role: How to go about it; it attaches to the shape's entry Signature.
            model: The model of this one turn; see `converse`.
            key: Makes a repeated start the same turn; see `converse`.
            unattended: What the turn does where a person would be asked; see `converse`.

        Returns:
            The turn, with the typed result in `result`.

        Raises:
            InvalidArgument: `skill` is not a `Composed`, or the agent's profile switches skills off.
            UnknownShape, UnknownWorker, ParamsInvalid, ResultInvalid, TaskFailed, ThreadBusy, HostError: As for `task`.
        """
        return await self._runner.run(self._mode(self._skill(skill, params, model), unattended), role, key=key)

    def stream_skill(
        self,
        skill: Composed,
        params: Mapping[str, Any] | None = None,
        *,
        role: Role | None = None,
        detach: bool = False,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> TurnStream:
        """As `run_skill`, as a stream of events: `async with thread.stream_skill(...) as stream`; see `stream`."""
        return self._runner.stream(
            self._mode(self._skill(skill, params, model), unattended), role, detach=detach, key=key
        )

    async def run_scheduled(
        self,
        trigger: Trigger,
        *,
        role: Role | None = None,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> Turn:
        """Run a turn because a schedule fired; an outside task runner may pass a call role, which is not stored (T7).

        Args:
            trigger: The schedule, the time, the payload. The model gets them as the turn's message.
            role: How to go about it.
            model: The model of this one turn; see `converse`.
            key: Makes a repeated start the same turn; see `converse`.
            unattended: What the turn does where a person would be asked; see `converse`. None is the setting
                `unattended`, False is a run that a person watches.

        Returns:
            The turn, with the answer in `text`.

        Raises:
            InvalidArgument: `trigger` is not a `Trigger`.
            ThreadBusy, HostError, OutputInvalid, RoleSourceUnavailable: As for `converse`.
        """
        return await self._runner.run(self._mode(self._scheduled(trigger, model), unattended), role, key=key)

    def stream_scheduled(
        self,
        trigger: Trigger,
        *,
        role: Role | None = None,
        detach: bool = False,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
    ) -> TurnStream:
        """As `run_scheduled`, as a stream of events: `async with thread.stream_scheduled(...) as stream`."""
        return self._runner.stream(
            self._mode(self._scheduled(trigger, model), unattended), role, detach=detach, key=key
        )

    async def resume(
        self,
        answers: Mapping[str, object] | None = None,
        *,
        role: Role | Unset | None = UNSET,
        on_role_change: OnRoleChange = "fail",
        skill: Composed | None = None,
        output: Any = None,
    ) -> Turn:
        """Go on with the turn that waits for a person, was stopped, failed in passing, or was cut off with its process.

        Args:
            answers: Answers by pause id: `Approve()`, `Reject(reason)`, `Answer(value)` and so on from
                `worldagent.core.pauses`; to a question its value alone will do. Some of several pauses will do.
            role: The call's role again. Left out where the turn had one is `RoleRequired`; None goes on without one on
                purpose.
            on_role_change: `fail`, `refresh` to go on with what resolves now, or `pin` to keep the role as it was,
                while it is still in memory (R13).
            skill: The skill again, where the turn runs one.
            output: The type of the answer again, where the turn was asked for one; left out, the answer is checked by
                its JSON Schema alone and `turn.result` is JSON.

        Returns:
            The turn: `done`, or `paused` again.

        Raises:
            NothingToResume: The thread has no turn that could go on.
            UnknownPause, AlreadyAnswered, AnswerInvalid: An answer cannot be taken; none was.
            GraphChanged, ModelNotConfigured: What the turn began with is no longer there; no answer was taken.
            RoleRequired, RoleChanged, RoleKeyMismatch: The role is not the one that the turn began with; no model was
                called, and no answer was taken. An answer from another account than the turn's is taken without the
                role, which only the turn's own account can give, and waits for that account's `resume`.
            ThreadBusy, HostError, OutputInvalid, TaskFailed: As for `converse`.
        """
        how = _resumption(role, on_role_change, skill, output)
        async with self._runner.resume(self.scope, answers or {}, how, deltas=False) as stream:
            return await stream.wait()

    def stream_resume(
        self,
        answers: Mapping[str, object] | None = None,
        *,
        role: Role | Unset | None = UNSET,
        on_role_change: OnRoleChange = "fail",
        skill: Composed | None = None,
        output: Any = None,
        detach: bool = False,
    ) -> TurnStream:
        """As `resume`, as a stream of events: `async with thread.stream_resume(...) as stream`.

        The answers are taken when the block is entered, and what `resume` raises of them comes there.

        With `detach` the turn goes on when the block is left, and is recorded from now on, if it was not before.
        """
        how = _resumption(role, on_role_change, skill, output)
        return self._runner.resume(self.scope, answers or {}, how, deltas=True, detach=detach)

    async def repeats(self, key: str) -> bool:
        """Whether a start with this key would give a turn that is there, and run none: it is over, waits, or runs.

        For a host that bounds how many turns it runs. A turn that was cut off, was stopped or failed in passing would
        go on with such a start.

        Args:
            key: As the surfaces take it.

        Raises:
            InvalidArgument: It cannot be one.
        """
        return await self._runner.repeats(self.scope, key)

    async def state(self) -> ThreadState | None:
        """Where the thread stands: what became of its newest turn; None where it has none."""
        return await self._runner.parts.threads.find(self.scope)

    async def rename(self, title: str | None) -> str | None:
        """Set what the thread is called in lists. Nothing else of it changes, and no model sees the title.

        A fork begins with the title that its origin was given, and an export takes it along.

        Args:
            title: 1 to 120 printable characters in one line; None gives the first words of the first message back.

        Returns:
            The title that the thread has now; None where none was given and nobody has said anything.

        Raises:
            InvalidArgument: `title` cannot be a title, or the thread has no turn yet and was not branched off.
        """
        return await self._runner.parts.threads.rename(self.scope, title)

    async def pauses(self) -> tuple[Pause, ...]:
        """The pauses of the thread's turn; empty where there are none.

        A pause whose `answered` is true has its answer. It stays in the list until a run takes the answer up, which a
        process that was killed after the answer leaves to the next `resume()`.
        """
        return await self._runner.parts.threads.pauses(self.scope)

    async def cancel(self) -> bool:
        """Cancel the thread's turn, in whatever process it runs or wherever it waits.

        Returns:
            False if there is none to cancel.
        """
        return await self._runner.cancel(self.scope)

    async def history(self, *, before: str | None = None, limit: int = 50) -> tuple[Message, ...]:
        """A page of the conversation, oldest first.

        Args:
            before: A message's id; the page ends just before it. None is the newest page.
            limit: How many messages, 1 to 1000.

        Raises:
            UnknownMessage: `before` is not one of this thread's.
            InvalidArgument: `limit` is out of bounds.
        """
        return await self._runner.parts.engine.history(thread_key(self.scope), before=before, limit=limit)

    async def keep(self, message_id: str) -> None:
        """Let the model see a message word for word, however long the thread becomes. Twice is as good as once.

        Args:
            message_id: Its id, as `history` gives it: of a message, an answer, a result or a schedule.

        Raises:
            UnknownMessage: It is not one of this thread's.
            InvalidArgument: It is of another kind, or the thread keeps 100 messages already.
        """
        await keep(self._runner.parts, self.scope, message_id)

    async def unkeep(self, message_id: str) -> bool:
        """Leave a message to the next summary again, as any other.

        Returns:
            False if it was not kept.
        """
        return await unkeep(self._runner.parts, self.scope, message_id)

    async def kept(self) -> tuple[Message, ...]:
        """The messages that are kept, oldest first."""
        return await kept(self._runner.parts, self.scope)

    async def fork(self, *, at: str | None = None, to: str | None = None) -> Self:
        """Make a thread that goes on from a message of this one. It costs one row, however long the past is.

        The role of this thread is not that of the new one.

        Args:
            at: The message's id, as `history` gives it; None is the newest.
            to: The new thread's id; None makes one of this one's and a number.

        Returns:
            The new thread, for the same account and channel.

        Raises:
            UnknownMessage: `at` is not one of this thread's.
            InvalidArgument: The thread has no message yet, or `to` is no id.
            NameTaken, ThreadBusy: There is a thread `to`, or somebody is beginning one.
        """
        return replace(self, scope=await self._runner.parts.branching.fork(self.scope, at=at, to=to))

    async def replay(
        self,
        at: str | None = None,
        *,
        to: str | None = None,
        role: Role | None = None,
        skill: Composed | None = None,
        model: TurnModel = None,
    ) -> Turn:
        """Run a turn of this thread again, on a new thread that goes on from what stood before it.

        Args:
            at: The message that the turn began with; None is the newest that a turn began with.
            to: The new thread's id; None makes one of this one's and a number.
            role: How to go about it. The role of the first time is stored nowhere; stored ones count as they are now.
            skill: The skill again, where the turn ran one.
            model: The model of this one turn; see `converse`. That of the first time does not count.

        Returns:
            The turn; `turn.thread` is the new thread's id.

        Raises:
            UnknownMessage: `at` is not one of this thread's.
            InvalidArgument: No turn began with `at`, or `skill` is missing, of another shape, or does not belong there.
            NameTaken, ThreadBusy: There is a thread `to`, or somebody is beginning one.
            UnknownShape, UnknownWorker, ParamsInvalid: What a task needs is gone, or is declared otherwise.
            HostError, OutputInvalid, TaskFailed, RoleSourceUnavailable: As for `converse` and `task`.
        """
        again = Replay(at, to, skill, turn_models(model))
        async with self._runner.replay(self.scope, again, role, deltas=False) as stream:
            return await stream.wait()

    def stream_replay(
        self,
        at: str | None = None,
        *,
        to: str | None = None,
        role: Role | None = None,
        skill: Composed | None = None,
        model: TurnModel = None,
    ) -> TurnStream:
        """As `replay`, as a stream of events: `async with thread.stream_replay(...) as stream`."""
        again = Replay(at, to, skill, turn_models(model))
        return self._runner.replay(self.scope, again, role, deltas=True)

    async def edit(
        self,
        text: str,
        *,
        at: str | None = None,
        keep_as: str | None = None,
        role: Role | None = None,
        model: TurnModel = None,
    ) -> Turn:
        """Say a message of this thread otherwise and wait for the answer; the thread goes on from there.

        What came of the message as it was is kept as another thread. A turn that was cut off or failed is let go of.

        Args:
            text: What the person says instead. What else the message carries stays.
            at: The message's id, of kind `message` and this account's own; None is the newest of kind `message`.
            keep_as: The id of the thread that keeps it; None makes one of this one's and a number.
            role: How to go about this one turn.
            model: The model of this one turn; see `converse`.

        Returns:
            The turn, with the answer in `text`; `turn.kept_as` is the id of the thread that keeps what was.

        Raises:
            UnknownMessage: `at` is not one of this thread's.
            InvalidArgument: The message is of another kind or account, there is none, or `text` is empty or no text.
            NameTaken: There is a thread `keep_as`.
            ThreadPaused: A turn of the thread waits for a person, or was stopped.
            ThreadBusy, HostError, OutputInvalid, RoleSourceUnavailable: As for `converse`.
        """
        request, edit = self._said(text, model), Edit(at, keep_as)
        async with self._runner.stream(request, role, deltas=False, edit=edit) as stream:
            return await stream.wait()

    def stream_edit(
        self,
        text: str,
        *,
        at: str | None = None,
        keep_as: str | None = None,
        role: Role | None = None,
        model: TurnModel = None,
    ) -> TurnStream:
        """As `edit`, as a stream of events: `async with thread.stream_edit(...) as stream`."""
        return self._runner.stream(self._said(text, model), role, edit=Edit(at, keep_as))

    def _mode(self, request: TurnRequest, given: Unattended) -> TurnRequest:
        """The same turn with what it does where a person would be asked."""
        setting = self._runner.parts.unattended
        return replace(request, unattended=check_unattended(given, setting, scheduled=request.kind == "schedule"))

    def _named(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body of what a person says or asks for, with how they are called."""
        return dict(body) if self.name is None else {**body, "name": self.name}

    def _said(self, text: str, model: TurnModel) -> TurnRequest:
        """What a person says.

        Raises:
            InvalidArgument: It is empty, or no text, or `model` names no model.
        """
        if not is_text(text):
            raise InvalidArgument("the message is empty or not a text", remedy="say something that UTF-8 can hold")
        return TurnRequest("message", self.scope, self._named({"text": text}), model=turn_models(model))

    def _task(
        self,
        shape: str,
        params: Mapping[str, Any] | BaseModel,
        attachments: Sequence[AttachmentSource],
        model: TurnModel,
    ) -> TurnRequest:
        names = turn_models(model)
        work = self._runner.parts.engine.work(shape, params)
        body = self._named({"shape": shape, "params": work["params"]})
        return TurnRequest("task", self.scope, body, work, attached=_checked(attachments), model=names)

    def _message(
        self, text: str, attachments: Sequence[AttachmentSource], model: TurnModel, output: object
    ) -> TurnRequest:
        request, wanted = self._said(text, model), output_type(output)
        body = request.body if wanted is None else {**request.body, "output": wanted.json_schema()}
        return replace(request, body=body, attached=_checked(attachments), output=wanted)

    def _skill(self, skill: Composed, params: Mapping[str, Any] | None, model: TurnModel) -> TurnRequest:
        if not isinstance(skill, Composed):
            raise InvalidArgument(
                f"a skill of type {type(skill).__name__} was given",
                remedy="pass Composed(prompt, shape=..., params=...)",
            )
        check_skills(self._runner.parts.profile)
        work = self._runner.parts.engine.work(skill.shape, {**skill.params, **(params or {})})
        body = self._named({"skill": skill.name, "shape": skill.shape, "params": work["params"]})
        return TurnRequest("skill", self.scope, body, work, skill.prompt, model=turn_models(model))

    def _scheduled(self, trigger: Trigger, model: TurnModel) -> TurnRequest:
        if not isinstance(trigger, Trigger):
            raise InvalidArgument(
                f"a trigger of type {type(trigger).__name__} was given",
                remedy="pass Trigger(schedule=..., fired_at=..., payload=...)",
            )
        body = {
            "schedule": trigger.schedule,
            "fired_at": trigger.fired_at.isoformat(),
            "payload": dict(trigger.payload),
        }
        return TurnRequest("schedule", self.scope, body, model=turn_models(model))


def _checked(attachments: Sequence[AttachmentSource]) -> tuple[AttachmentSource, ...]:
    if isinstance(attachments, str | bytes) or not isinstance(attachments, Sequence):
        raise InvalidArgument("attachments is no list", remedy="give attachments=[...]")
    check_count(attachments)
    for source in attachments:
        check_source(source)
    return tuple(attachments)


def _resumption(
    role: Role | Unset | None, on_role_change: OnRoleChange, skill: Composed | None, output: object
) -> Resumption:
    if on_role_change not in ("fail", "refresh", "pin"):
        raise InvalidArgument(f"on_role_change {on_role_change!r} is unknown", remedy="use 'fail', 'refresh' or 'pin'")
    if skill is not None and not isinstance(skill, Composed):
        raise InvalidArgument(
            f"a skill of type {type(skill).__name__} was given",
            remedy="pass the Composed(...) that the turn began with",
        )
    if role is not None and role is not UNSET:
        check_role(role)
    return Resumption(role, on_role_change, None if skill is None else skill.prompt, output_type(output))
