"""A thread: an immutable, cheap handle on a scope, with the four surfaces that take a role (R8)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel

from ..core import ROOT, Scope, Tier, check_id
from ..core.checks import check_texts
from ..core.errors import InvalidArgument, UnknownSkill
from ..core.events import Deltas
from ..core.pauses import Pause
from ..core.scope import MEMBER_ACCOUNT
from ..core.validation import check_line, is_text
from ..graphs import SKILL, Composed, TurnRequest
from ..harness.inside import Inside
from ..harness.worker import REQUEST
from ..memory import Message, thread_key
from ..memory.attachments import AttachmentSource, check_count, check_source
from ..memory.conversation import MAX_NAME_CHARACTERS
from ..memory.entries.recall import Passage, context_json
from ..memory.examples import Feedback
from ..role_resolution import Role
from ..role_resolution.role import check_role, refuses_texts
from .choices import TurnModel, Unattended, check_example, check_skills, check_unattended, output_type, turn_models
from .roles import ThreadRole
from .runtime import Edit, OnRoleChange, Replay, Resumption, TurnRunner
from .settings import UNSET, Unset
from .threads import ThreadState
from .turns import Trigger, Turn, TurnStream

if TYPE_CHECKING:
    from ..graphs.outer import NodeView


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
    _view: NodeView | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.name is not None:
            check_line("name", self.name, MAX_NAME_CHARACTERS, remedy="shorten it, or leave it out")

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
        context: Sequence[str | Passage] = (),
        example: bool = False,
        inputs: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Send a message and wait for the answer.

        Args:
            text: The person's message.
            role: The role for this one turn.
            attachments: Images and files of the message, 16 at most: `pathlib.Path`, bytes, an address as a string, or
                a result of `agent.attachments.add()` or `.of(message)`.
            model: The model of this one turn, instead of the agent's: a name from `WorldAgent(models=...)` or the
                setting `models`, or a model string. Several are tried in turn until one can be reached.
            output: What the answer must be: a pydantic model, another type pydantic can validate, or a JSON Schema.
                `turn.result` is then a value of that type (JSON, for a schema), and `turn.text` its JSON.
            key: Makes a repeated start the same turn: 1 to 200 printable characters of your choice, unique in this
                thread. A repeat waits for a running turn, returns the outcome of one that is over, and resumes one that
                was interrupted, was stopped or failed with a retryable error.
            unattended: What the turn does if a person would be asked: None asks them, `"refuse"` refuses the call,
                `"pause"` pauses and notifies, True uses the setting `unattended`. A resumed turn keeps this.
            example: Whether the person agrees that the turn is kept for `agent.examples`, if the setting `examples` is
                `asked`. With `all` every turn is kept.
            context: Passages for this message, such as what your own search found: texts, or `Passage`s with a source.
                The model is shown them with what the turn recalls, and they are kept nowhere. They count as untrusted,
                unless a `Passage` says that it is trusted. The agent needs memory for them.
            inputs: The further inputs of the class in `WorldAgent(converse=...)`, by name (T20). They are kept with
                the message, and the model sees them again in later turns.

        Returns:
            The turn, with the answer in `text` and further outputs in `outputs`; it can be `paused` for a person
            instead.

        Raises:
            InvalidArgument: An argument is invalid, an input is missing, unknown or does not fit its type, or `example`
                is True while the setting `examples` is `off`.
            ThreadPaused: A turn of the thread waits for a person, or was stopped.
            ThreadBusy: Another turn owned the thread for longer than the setting `thread_wait`.
            TurnTimeout: The turn took longer than the setting `turn_timeout`; `resume` continues it.
            RoleSourceUnavailable, RoleSourceInvalid, RoleTooLong, RoleInvalid: Nothing has reached a model or the log.
            AttachmentInvalid, AttachmentNotTaken, AttachmentMissing: Nothing has reached a model or the log.
            ModelNotConfigured: The turn's model cannot be used; nothing has reached a model or the log.
            KeyReused: The key was used on this thread for another request.
            HostError, OutputInvalid: The model failed; the person's message stays in the log.
        """
        request = self._message(text, attachments, model, output, context, inputs)
        return await self._runner.run(self._mode(request, unattended, example), role, key=key)

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
        context: Sequence[str | Passage] = (),
        example: bool = False,
        subagents: bool = False,
        inputs: Mapping[str, Any] | None = None,
    ) -> TurnStream:
        """Send a message and follow the turn's events: `async with thread.stream(...) as stream`.

        Args:
            text: The person's message.
            role: The role for this one turn.
            detach: Whether the turn continues after the block is left; `agent.events` can then follow it.
            attachments: Images and files of the message; see `converse`.
            model: The model of this one turn; see `converse`.
            output: What the answer must be; see `converse`. The answer comes as one `text_delta`, once it is validated.
            key: Makes a repeated start the same turn; see `converse`. A repeat gives all the turn's events from the
                first one.
            unattended: What the turn does if a person would be asked; see `converse`.
            example: Whether the person agrees that the turn is kept as examples; see `converse`.
            context: Passages for this message; see `converse`.
            subagents: Whether to stream the text, the reasoning and the calls' arguments of workers and skills, too, as
                `task_text_delta`, `task_reasoning_delta` and `task_arguments_delta`. They are not recorded.
            inputs: The further inputs; see `converse`. Further outputs are in the last event, `turn_ended`.

        Raises:
            InvalidArgument, AttachmentInvalid, RoleInvalid, ModelNotConfigured: An argument is invalid. The errors of
                `converse` are raised while entering or iterating.
        """
        request = self._message(text, attachments, model, output, context, inputs)
        mode = self._mode(request, unattended, example)
        return self._runner.stream(mode, role, deltas=_deltas(subagents), detach=detach, key=key)

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
        context: Sequence[str | Passage] = (),
        example: bool = False,
    ) -> Turn:
        """Dispatch one task to a shape.

        Args:
            shape: The shape's key, such as `subagent`.
            params: Its params.
            role: The role for this turn; it attaches to the shape's entry Signature.
            attachments: Images and files that the task's message refers to, so that they are kept as long as it is.
                Params name them by their `sha256`, and a handler opens them with `ctx.attachments`.
            model: The model of this one turn; see `converse`.
            key: Makes a repeated start the same turn; see `converse`.
            unattended: What the turn does if a person would be asked; see `converse`.
            context: Passages for this task, which a worker with `memory` is shown; see `converse`.
            example: Whether the person agrees that the turn is kept as examples; see `converse`.

        Returns:
            The turn, with the typed result in `result`.

        Raises:
            UnknownShape, UnknownWorker, ParamsInvalid: The text names the invalid value; nothing was written.
            ResultInvalid, TaskFailed: The shape failed.
            ThreadBusy, HostError, RoleSourceUnavailable: As for `converse`.
        """
        passages = self._passages(context) if context else None
        request = replace(self._task(shape, params, attachments, model), prompt=passages)
        return await self._runner.run(self._mode(request, unattended, example), role, key=key)

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
        example: bool = False,
        subagents: bool = False,
    ) -> TurnStream:
        """Like `task`, without attachments, as a stream of events: `async with thread.stream_task(...) as stream`."""
        request = self._mode(self._task(shape, params, (), model), unattended, example)
        return self._runner.stream(request, role, deltas=_deltas(subagents), detach=detach, key=key)

    async def run_skill(
        self,
        skill: Composed | str,
        params: Mapping[str, Any] | None = None,
        *,
        role: Role | None = None,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
        example: bool = False,
    ) -> Turn:
        """Run a skill: a package of the agent by name, or a shape with a prompt of your own.

        Args:
            skill: The name of a package, or a composed skill, whose prompt is not stored.
            params: For a package `{"request": TEXT}`, or the input that it declares. For a composed skill, params that
                override its own.
            role: The role for this turn; it attaches to the entry Signature of the skill.
            model: The model of this one turn; see `converse`.
            key: Makes a repeated start the same turn; see `converse`.
            unattended: What the turn does if a person would be asked; see `converse`.
            example: Whether the person agrees that the turn is kept as examples; see `converse`.

        Returns:
            The turn, with the typed result in `result`.

        Raises:
            InvalidArgument: `skill` is neither a name nor a `Composed`, `params` is not a mapping, or the agent's
                profile switches skills off.
            UnknownSkill: The agent has no skill of this name.
            UnknownShape, UnknownWorker, ParamsInvalid, ResultInvalid, TaskFailed, ThreadBusy, HostError: As for `task`.
        """
        request = self._mode(self._skill(skill, params, model), unattended, example)
        return await self._runner.run(request, role, key=key)

    def stream_skill(
        self,
        skill: Composed | str,
        params: Mapping[str, Any] | None = None,
        *,
        role: Role | None = None,
        detach: bool = False,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
        example: bool = False,
        subagents: bool = False,
    ) -> TurnStream:
        """Like `run_skill`, as a stream of events: `async with thread.stream_skill(...) as stream`; see `stream`."""
        request = self._mode(self._skill(skill, params, model), unattended, example)
        return self._runner.stream(request, role, deltas=_deltas(subagents), detach=detach, key=key)

    async def run_scheduled(
        self,
        trigger: Trigger,
        *,
        role: Role | None = None,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
        example: bool = False,
        inputs: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Run a turn because a schedule fired. The task runner can pass a call role, which is not stored (T7).

        Args:
            trigger: The schedule, the time, the payload. The model gets them as the turn's message.
            role: The role for this turn.
            model: The model of this one turn; see `converse`.
            key: Makes a repeated start the same turn; see `converse`.
            unattended: What the turn does if a person would be asked; see `converse`. None uses the setting
                `unattended`, False is a run that a person watches.
            example: Whether the person agrees that the turn is kept as examples; see `converse`.
            inputs: The further inputs; see `converse`.

        Returns:
            The turn, with the answer in `text`.

        Raises:
            InvalidArgument: `trigger` is not a `Trigger`, or the inputs are invalid.
            ThreadBusy, HostError, OutputInvalid, RoleSourceUnavailable: As for `converse`.
        """
        request = self._mode(self._scheduled(trigger, model, inputs), unattended, example)
        return await self._runner.run(request, role, key=key)

    def stream_scheduled(
        self,
        trigger: Trigger,
        *,
        role: Role | None = None,
        detach: bool = False,
        model: TurnModel = None,
        key: str | None = None,
        unattended: Unattended = None,
        example: bool = False,
        subagents: bool = False,
        inputs: Mapping[str, Any] | None = None,
    ) -> TurnStream:
        """Like `run_scheduled`, as a stream of events: `async with thread.stream_scheduled(...) as stream`."""
        request = self._mode(self._scheduled(trigger, model, inputs), unattended, example)
        return self._runner.stream(request, role, deltas=_deltas(subagents), detach=detach, key=key)

    async def resume(
        self,
        answers: Mapping[str, object] | None = None,
        *,
        role: Role | Unset | None = UNSET,
        on_role_change: OnRoleChange = "fail",
        skill: Composed | None = None,
        output: Any = None,
        context: Sequence[str | Passage] = (),
    ) -> Turn:
        """Resume the turn that waits for a person, was stopped, was interrupted, or failed with a retryable error.

        Args:
            answers: Answers by pause id: `Approve()`, `Reject(reason)`, `Answer(value)` and so on from
                `worldagent.core.pauses`. A question also takes its value alone. You can answer only some of the pauses.
            role: The call's role again. If the turn had one, leaving it out raises `RoleRequired`; None resumes without
                one on purpose.
            on_role_change: `fail`, `refresh` to continue with the role that resolves now, or `pin` to keep the earlier
                role while it is still in memory (R13).
            skill: The skill again, if the turn runs one.
            output: The type of the answer again, if the turn was started with one. Without it, the answer is validated
                only against its JSON Schema and `turn.result` is JSON.
            context: The passages again, if the message was given any.

        Returns:
            The turn: `done`, or `paused` again.

        Raises:
            NothingToResume: The thread has no turn that can be resumed.
            UnknownPause, AlreadyAnswered, AnswerInvalid: An answer is not accepted; none was stored.
            GraphChanged, ModelNotConfigured: Something that the turn began with is gone; no answer was stored.
            RoleRequired, RoleChanged, RoleKeyMismatch: The role is not the one that the turn began with; no model was
                called, and no answer was stored. An answer from another account than the turn's is stored without the
                role, which only the turn's own account can pass, and waits for that account's `resume`.
            ThreadBusy, HostError, OutputInvalid, TaskFailed: As for `converse`.
        """
        how = _resumption(role, on_role_change, skill, output, context)
        async with self._runner.resume(self.scope, answers or {}, how, deltas="none") as stream:
            return await stream.wait()

    def stream_resume(
        self,
        answers: Mapping[str, object] | None = None,
        *,
        role: Role | Unset | None = UNSET,
        on_role_change: OnRoleChange = "fail",
        skill: Composed | None = None,
        output: Any = None,
        context: Sequence[str | Passage] = (),
        detach: bool = False,
        subagents: bool = False,
    ) -> TurnStream:
        """Like `resume`, as a stream of events: `async with thread.stream_resume(...) as stream`.

        The answers are stored when the block is entered; errors about them are raised there.

        With `detach` the turn continues after the block is left, and is recorded from now on if it was not before.
        `subagents` is as for `stream`.
        """
        how = replace(_resumption(role, on_role_change, skill, output, context), view=self._view)
        return self._runner.resume(self.scope, answers or {}, how, deltas=_deltas(subagents), detach=detach)

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

    async def replay(
        self,
        at: str | None = None,
        *,
        to: str | None = None,
        role: Role | None = None,
        skill: Composed | None = None,
        model: TurnModel = None,
        example: bool = False,
    ) -> Turn:
        """Run a turn of this thread again, on a new thread that continues from the messages before it.

        Args:
            at: The message that the turn began with; None is the newest such message.
            to: The new thread's id; None makes one from this thread's id and a number.
            role: The role for this turn. The first run's call role is not stored; stored roles apply as they are now.
            skill: The skill again, if the turn ran one.
            model: The model of this one turn; see `converse`. The first run's model is not used.
            example: Whether the person agrees that the turn is kept as examples; see `converse`.

        Returns:
            The turn; `turn.thread` is the new thread's id.

        Raises:
            UnknownMessage: The thread has no message `at`.
            InvalidArgument: No turn began with `at`, or `skill` is missing, has another shape, or is not needed.
            NameTaken, ThreadBusy: The thread `to` exists, or another call is creating it.
            UnknownShape, UnknownWorker, ParamsInvalid: Something that a task needs is gone or is declared differently.
            HostError, OutputInvalid, TaskFailed, RoleSourceUnavailable: As for `converse` and `task`.
        """
        again = Replay(at, to, skill, turn_models(model), self._kept(example))
        async with self._runner.replay(self.scope, again, role, deltas="none") as stream:
            return await stream.wait()

    def stream_replay(
        self,
        at: str | None = None,
        *,
        to: str | None = None,
        role: Role | None = None,
        skill: Composed | None = None,
        model: TurnModel = None,
        example: bool = False,
        subagents: bool = False,
    ) -> TurnStream:
        """Like `replay`, as a stream of events: `async with thread.stream_replay(...) as stream`."""
        again = Replay(at, to, skill, turn_models(model), self._kept(example))
        return self._runner.replay(self.scope, again, role, deltas=_deltas(subagents))

    async def edit(
        self,
        text: str,
        *,
        at: str | None = None,
        keep_as: str | None = None,
        role: Role | None = None,
        model: TurnModel = None,
        example: bool = False,
        inputs: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Edit a message of this thread, run the turn again and wait for the answer; the thread continues from there.

        The original messages stay available as another thread. A turn that was interrupted or failed is abandoned.

        Args:
            text: The new text. The rest of the message stays the same.
            at: The id of one of this account's messages, of kind `message`; None is the newest of kind `message`.
            keep_as: The id of the thread that keeps the original; None makes one from this thread's id and a number.
            role: The role for this one turn.
            model: The model of this one turn; see `converse`.
            example: Whether the person agrees that the turn is kept as examples; see `converse`.
            inputs: The further inputs in place of those of the message; None leaves them as they are.

        Returns:
            The turn, with the answer in `text`; `turn.kept_as` is the id of the thread that keeps the original.

        Raises:
            UnknownMessage: The thread has no message `at`.
            InvalidArgument: The message is of another kind or account, none exists, `text` is empty or no string, or
                the inputs do not fit the agent's class.
            NameTaken: The thread `keep_as` exists.
            ThreadPaused: A turn of the thread waits for a person, or was stopped.
            ThreadBusy, HostError, OutputInvalid, RoleSourceUnavailable: As for `converse`.
        """
        request, edit = self._edited(text, model, example, inputs), Edit(at, keep_as)
        async with self._runner.stream(request, role, deltas="none", edit=edit) as stream:
            return await stream.wait()

    def stream_edit(
        self,
        text: str,
        *,
        at: str | None = None,
        keep_as: str | None = None,
        role: Role | None = None,
        model: TurnModel = None,
        example: bool = False,
        subagents: bool = False,
        inputs: Mapping[str, Any] | None = None,
    ) -> TurnStream:
        """Like `edit`, as a stream of events: `async with thread.stream_edit(...) as stream`."""
        request, edit = self._edited(text, model, example, inputs), Edit(at, keep_as)
        return self._runner.stream(request, role, deltas=_deltas(subagents), edit=edit)

    def _mode(self, request: TurnRequest, given: Unattended, example: bool) -> TurnRequest:
        """Return the request with what the turn does if a person would be asked, for whom, and whether it is kept."""
        setting = self._runner.parts.settings.unattended
        self._check_account()
        if given is None and self._on_behalf_of != ROOT:
            given = "pause"
        hooks = self._runner.parts.hooks
        marks = sorted({*self._marks, *(mark for of in hooks.marks for mark in of(self._on_behalf_of))})
        return replace(
            request,
            body={**request.body, "untrusted": marks} if marks else request.body,
            unattended=check_unattended(given, setting, scheduled=request.kind == "schedule"),
            tiers=self.tiers,
            example=self._kept(example),
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

    def _kept(self, example: bool) -> bool:
        return check_example(example, self._runner.parts.settings.examples)

    def _edited(
        self, text: str, model: TurnModel, example: bool, inputs: Mapping[str, Any] | None = None
    ) -> TurnRequest:
        request = self._message_request(text, model)
        request = replace(request, example=self._kept(example))
        return request if inputs is None else self._with_inputs(request, inputs)

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

    def _message_request(self, text: str, model: TurnModel) -> TurnRequest:
        """Build the request for a person's message.

        Raises:
            InvalidArgument: `text` is not a non-empty string, or `model` does not name a model.
        """
        if not is_text(text):
            raise InvalidArgument("`text` must be a non-empty string that UTF-8 can encode", remedy="send another text")
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
        self,
        text: str,
        attachments: Sequence[AttachmentSource],
        model: TurnModel,
        output: object,
        context: Sequence[str | Passage] = (),
        inputs: Mapping[str, Any] | None = None,
    ) -> TurnRequest:
        request, wanted = self._message_request(text, model), output_type(output)
        passages = self._passages(context) if context else None
        if wanted is not None:
            # The schema as one text: each later turn reads the message again and needs no object for each part of it.
            # Its keys stay in their order, in which a model answers: a reason before what follows from it.
            schema = json.dumps(wanted.json_schema(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            request = replace(request, body={**request.body, "output": schema})
        request = replace(request, attached=_checked(attachments), output=wanted, prompt=passages)
        return self._with_inputs(request, inputs)

    def _passages(self, context: Sequence[str | Passage]) -> str:
        """The passages of a message or a task, as JSON."""
        passages = context_json(context)
        if self._runner.parts.engine.services.recall is None:
            raise InvalidArgument(
                "`context` needs memory, and this agent has none", remedy="create the agent with memory=Memory()"
            )
        return passages

    def _skill(self, skill: Composed | str, params: Mapping[str, Any] | None, model: TurnModel) -> TurnRequest:
        check_skills(self._runner.parts.profile)
        if params is not None and not isinstance(params, Mapping):
            raise InvalidArgument(
                f"`params` must be a mapping, got a {type(params).__name__}", remedy='pass {"request": TEXT}, or fields'
            )
        if isinstance(skill, str):
            return self._package(skill, params or {}, model)
        if not isinstance(skill, Composed) or skill.shape == SKILL:
            raise InvalidArgument(
                f"`skill` must be a name or a Composed, got a {type(skill).__name__}",
                remedy="pass the name of a skill, or Composed(prompt, shape=..., params=...)",
            )
        work = self._runner.parts.engine.work(skill.shape, {**skill.params, **(params or {})})
        body = self._named({"skill": skill.name, "shape": skill.shape, "params": work["params"]})
        return TurnRequest("skill", self.scope, body, work, skill.prompt, model=turn_models(model))

    def _package(self, name: str, params: Mapping[str, Any], model: TurnModel) -> TurnRequest:
        engine, given = self._runner.parts.engine, dict(params)
        if SKILL not in engine.services.shapes.shapes:
            raise UnknownSkill(
                f"there is no skill {name[:100]!r}: the agent has none",
                remedy="pass WorldAgent(skills=[FOLDER]), and see `worldagent skills list`",
            )
        given = given if given.keys() == {REQUEST} else {"input": given}
        work = engine.work(SKILL, {"name": name, **given})
        body = self._named({"skill": name, "shape": SKILL, "params": work["params"]})
        return TurnRequest("skill", self.scope, body, work, model=turn_models(model))

    def _scheduled(self, trigger: Trigger, model: TurnModel, inputs: Mapping[str, Any] | None = None) -> TurnRequest:
        if not isinstance(trigger, Trigger):
            raise InvalidArgument(
                f"`trigger` must be a Trigger, got a {type(trigger).__name__}",
                remedy="pass Trigger(schedule=..., fired_at=..., payload=...)",
            )
        body = {
            "schedule": trigger.schedule,
            "fired_at": trigger.fired_at.isoformat(),
            "payload": dict(trigger.payload),
        }
        request = TurnRequest("schedule", self.scope, body, model=turn_models(model))
        return self._with_inputs(request, inputs)


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


def within_node(thread: Thread, view: NodeView) -> Thread:
    """Return a handle whose streamed turns are shown as subgraphs of a node; see `graphs.nesting.view_of`."""
    return replace(thread, _view=view)


def _deltas(subagents: bool) -> Deltas:
    return "all" if subagents else "answer"


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


def _resumption(
    role: Role | Unset | None,
    on_role_change: OnRoleChange,
    skill: Composed | None,
    output: object,
    context: Sequence[str | Passage],
) -> Resumption:
    if on_role_change not in ("fail", "refresh", "pin"):
        raise InvalidArgument(f"on_role_change {on_role_change!r} is unknown", remedy="use 'fail', 'refresh' or 'pin'")
    if skill is not None and not isinstance(skill, Composed):
        raise InvalidArgument(
            f"`skill` must be a Composed, got a {type(skill).__name__}",
            remedy="pass the Composed(...) that the turn began with",
        )
    if role is not None and role is not UNSET:
        check_role(role)
    passages = context_json(context) if context else None
    prompt = passages if skill is None else skill.prompt
    return Resumption(role, on_role_change, prompt, output_type(output))
