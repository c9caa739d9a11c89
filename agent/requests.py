"""The requests of a thread: what a turn begins or continues with. `thread.run` and `thread.stream` take one.

A new option of a turn is a field of one of these classes. They are values that can hold a role, so they cannot be
serialised, and their repr shows neither a role nor a prompt (R7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from ..role_resolution import Role
from ..role_resolution.role import Sealed, refuses_texts
from .settings import UNSET, Unset

if TYPE_CHECKING:
    from ..graphs import Composed
    from ..memory.attachments import AttachmentSource
    from ..memory.entries.recall import Passage
    from .choices import TurnModel, Unattended
    from .turns import Trigger

OnRoleChange = Literal["fail", "refresh", "pin"]


@dataclass(frozen=True, kw_only=True)
class Request(Sealed):
    """What every request has.

    Attributes:
        subagents: Whether a stream has the text, the reasoning and the calls' arguments of workers and skills, too, as
            `task_text_delta`, `task_reasoning_delta` and `task_arguments_delta`. They are not recorded.
    """

    subagents: bool = False


@dataclass(frozen=True, kw_only=True)
class TurnOptions(Request):
    """What every request has that begins a turn.

    Attributes:
        role: The role for this one turn.
        model: The model of this one turn, instead of the agent's: a name from `WorldAgent(models=...)` or the setting
            `models`, or a model string. Several are tried in turn until one can be reached.
        example: Whether the person agrees that the turn is kept for `agent.examples`, if the setting `examples` is
            `asked`. With `all` every turn is kept.
    """

    role: Role | None = field(default=None, repr=False)
    model: TurnModel = None
    example: bool = False


@dataclass(frozen=True, kw_only=True)
class StartOptions(TurnOptions):
    """What every request has that begins a turn at the end of the thread.

    Attributes:
        key: Makes a repeated start the same turn: 1 to 200 printable characters of your choice, unique in this thread.
            A repeat waits for a running turn, returns the outcome of one that is over, and resumes one that was
            interrupted, was stopped or failed with a retryable error. A stream has all the turn's events again.
        unattended: What the turn does if a person would be asked: None asks them, `"refuse"` refuses the call,
            `"pause"` pauses and notifies, True uses the setting `unattended`, False is a turn that a person watches.
            None is the setting for a scheduled turn. A resumed turn keeps this.
        guard: Whether no model of the turn that calls tools reads what a stranger can have written, as with
            `Worker(guard=True)`. None is the profile's `guard`, else the setting `guard`. A resumed turn keeps this.
        detach: Whether the turn continues after its caller has left; `agent.events` can then follow it.
    """

    key: str | None = None
    unattended: Unattended = None
    guard: bool | None = None
    detach: bool = False


@refuses_texts
@dataclass(frozen=True)
class Say(StartOptions):
    """Send a message to the conversation; the turn has the answer in `text` and further outputs in `outputs`.

    Attributes:
        text: The person's message.
        attachments: Images and files of the message, 16 at most: `pathlib.Path`, bytes, an address as a string, or a
            result of `agent.attachments.add()` or `.of(message)`.
        output: What the answer must be: a pydantic model, another type pydantic can validate, or a JSON Schema.
            `turn.result` is then a value of that type (JSON, for a schema), and `turn.text` its JSON. A stream has it
            as one `text_delta`, once it is validated.
        context: Passages for this message, such as what your own search found: texts, or `Passage`s with a source. The
            model is shown them with what the turn recalls, and they are kept nowhere. They count as untrusted, unless
            a `Passage` says that it is trusted. The agent needs memory for them.
        inputs: The further inputs of the class in `WorldAgent(converse=...)`, by name (T20). They are kept with the
            message, and the model sees them again in later turns.
        interrupt: Whether a turn of the thread that runs or waits is cancelled for this one, at its next safe point:
            at once while its model thinks, else after the calls under way. What it did stays in the log (T16).
    """

    text: str
    _: KW_ONLY
    attachments: Sequence[AttachmentSource] = field(default=(), repr=False)
    output: Any = None
    context: Sequence[str | Passage] = field(default=(), repr=False)
    inputs: Mapping[str, Any] | None = None
    interrupt: bool = False


@refuses_texts
@dataclass(frozen=True)
class Task(StartOptions):
    """Dispatch one task to a shape; the turn has the typed result in `result`.

    Attributes:
        shape: The shape's key, such as `subagent`. The role attaches to its entry Signature.
        params: Its params.
        attachments: Images and files that the task's message refers to, so that they are kept as long as it is.
            Params name them by their `sha256`, and a handler opens them with `ctx.attachments`.
        context: Passages for this task, which a worker with `memory` is shown; see `Say`.
    """

    shape: str
    params: Mapping[str, Any] | BaseModel
    _: KW_ONLY
    attachments: Sequence[AttachmentSource] = field(default=(), repr=False)
    context: Sequence[str | Passage] = field(default=(), repr=False)


@refuses_texts
@dataclass(frozen=True)
class Skill(StartOptions):
    """Run a skill: a package of the agent by name, or a shape with a prompt of your own.

    Attributes:
        skill: The name of a package, or a composed skill, whose prompt is not stored. The role attaches to its entry
            Signature.
        params: For a package `{"request": TEXT}`, or the input that it declares. For a composed skill, params that
            override its own.
    """

    skill: Composed | str = field(repr=False)
    params: Mapping[str, Any] | None = None


@refuses_texts
@dataclass(frozen=True)
class Scheduled(StartOptions):
    """Run a turn because a schedule fired. A task runner of your own can pass a call role, which is not stored (T7).

    Attributes:
        trigger: The schedule, the time, the payload. The model gets them as the turn's message.
        inputs: The further inputs; see `Say`.
    """

    trigger: Trigger
    _: KW_ONLY
    inputs: Mapping[str, Any] | None = None


@refuses_texts
@dataclass(frozen=True)
class Edit(TurnOptions):
    """Edit a message of the thread and run the turn again; the thread continues from there.

    The original messages stay available as another thread, whose id is `turn.kept_as`. A turn that was interrupted or
    failed is abandoned.

    Attributes:
        text: The new text. The rest of the message stays the same.
        at: The id of one of this account's messages, of kind `message`; None is the newest of kind `message`.
        keep_as: The id of the thread that keeps the original; None makes one from this thread's id and a number.
        inputs: The further inputs in place of those of the message; None leaves them as they are.
    """

    text: str
    _: KW_ONLY
    at: str | None = None
    keep_as: str | None = None
    inputs: Mapping[str, Any] | None = None


@refuses_texts
@dataclass(frozen=True)
class Replay(TurnOptions):
    """Run a turn of the thread again, on a new thread that continues from the messages before it.

    The first run's call role is not stored and its model is not used; stored roles apply as they are now. `turn.thread`
    is the new thread's id.

    Attributes:
        at: The message that the turn began with; None is the newest such message.
        to: The new thread's id; None makes one from this thread's id and a number.
        skill: The composed skill again, if the turn ran one.
    """

    at: str | None = None
    _: KW_ONLY
    to: str | None = None
    skill: Composed | None = field(default=None, repr=False)


@refuses_texts
@dataclass(frozen=True)
class Resume(Request):
    """Resume the turn that waits for a person, was stopped, was interrupted, or failed with a retryable error.

    Attributes:
        answers: Answers by pause id: `Approve()`, `Reject(reason)`, `Answer(value)` and so on from
            `worldagent.core.pauses`. A question also takes its value alone. You can answer only some of the pauses.
            They are stored when the turn resumes: for a stream, when its block is entered.
        role: The call's role again. If the turn had one, leaving it out raises `RoleRequired`; None resumes without one
            on purpose.
        on_role_change: `fail`, `refresh` to continue with the role that resolves now, or `pin` to keep the earlier role
            while it is still in memory (R13).
        skill: The composed skill again, if the turn runs one.
        output: The type of the answer again, if the turn was started with one. Without it, the answer is validated only
            against its JSON Schema and `turn.result` is JSON.
        context: The passages again, if the message was given any.
        detach: Whether the turn continues after its caller has left. It is recorded from now on if it was not before.
    """

    answers: Mapping[str, object] | None = None
    _: KW_ONLY
    role: Role | Unset | None = field(default=UNSET, repr=False)
    on_role_change: OnRoleChange = "fail"
    skill: Composed | None = field(default=None, repr=False)
    output: Any = None
    context: Sequence[str | Passage] = field(default=(), repr=False)
    detach: bool = False


__all__ = ["Edit", "Replay", "Request", "Resume", "Say", "Scheduled", "Skill", "StartOptions", "Task", "TurnOptions"]
