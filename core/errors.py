"""Every error this package raises on purpose, in three families by audience.

`ModelFacing` is told to the model when the model caused it, `HostError` means that the host (or the person who runs it)
must act, `UsageError` that the developer got a call wrong. Recovery is decided by type. This module holds no behaviour
beyond the texts: each error names the thing with `!r` (never the content of a role) and ends with the remedy.
"""

from __future__ import annotations

from typing import ClassVar


class WorldAgentError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: A stable identifier for programs, such as `"thread_busy"`.
        remedy: What the reader can do about it, a sentence without its full stop.
        retryable: Whether the same call may succeed later without any change.
        turn_id: The turn that failed, where there was one.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
        self.turn_id: str | None = None

    @staticmethod
    def kind_of(code: str) -> type[WorldAgentError]:
        """The type of error with this code; `TaskFailed` for one that this version does not know."""
        kinds = [WorldAgentError]
        for kind in kinds:  # it grows meanwhile
            if kind.code == code and kind.__module__ == __name__:
                return kind
            kinds.extend(kind.__subclasses__())
        return TaskFailed

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.problem, self.remedy, self.turn_id))


def _rebuild(kind: type[WorldAgentError], problem: str, remedy: str, turn_id: str | None) -> WorldAgentError:
    error = kind.__new__(kind)
    WorldAgentError.__init__(error, problem, remedy=remedy)
    error.turn_id = turn_id
    return error


class ModelFacing(WorldAgentError):
    """What a model got wrong. Whoever called on the model's behalf tells it so; a developer's own call just raises."""


class HostError(WorldAgentError):
    """What the host must act on: a store, a source or a model that is down, full or misconfigured."""


class UsageError(WorldAgentError):
    """What the developer got wrong: arguments, names, settings."""


# --- told to the model ---------------------------------------------------------------------------------------------


class UnknownShape(ModelFacing):
    """No shape has this key."""

    code = "unknown_shape"


class UnknownWorker(ModelFacing):
    """No worker has this name."""

    code = "unknown_worker"


class UnknownFunction(ModelFacing):
    """No function has this name."""

    code = "unknown_function"


class ParamsInvalid(ModelFacing):
    """The params do not fit the declared model; the text names each field."""

    code = "params_invalid"


class ResultInvalid(ModelFacing):
    """A result does not fit the declared model; the text names each field."""

    code = "result_invalid"


class OutputInvalid(ModelFacing):
    """A model's output could not be read as its Signature's output fields."""

    code = "output_invalid"


class TaskFailed(ModelFacing):
    """The code of a shape or function raised something of its own; only the type's name is kept."""

    code = "task_failed"


class CallRefused(ModelFacing):
    """A person did not allow a call."""

    code = "call_refused"


class PauseExpired(ModelFacing):
    """Nobody answered in time."""

    code = "pause_expired"


class EffectLost(ModelFacing):
    """A call was under way when its process stopped, and a person says that it did not happen (T5)."""

    code = "effect_lost"


class DepthExceeded(ModelFacing):
    """Calls nest too deep (H4)."""

    code = "depth_exceeded"


# --- the host must act ----------------------------------------------------------------------------------------------


class RoleSourceUnavailable(HostError):
    """A tier's source did not answer, or not in time."""

    code = "role_source_unavailable"
    retryable = True


class RoleSourceInvalid(HostError):
    """A tier's source answered something that is not a role."""

    code = "role_source_invalid"


class HostUnavailable(HostError):
    """A role host cannot be reached, is too slow or fails."""

    code = "host_unavailable"
    retryable = True


class HostForbidden(HostError):
    """A role host refuses the token, or a scope to it."""

    code = "host_forbidden"


class RoleEchoed(HostError):
    """The model repeated the role and `echo="fail"` is set (R16)."""

    code = "role_echoed"


class ModelUnavailable(HostError):
    """The model's service failed or cannot be reached."""

    code = "model_unavailable"
    retryable = True


class ModelRateLimited(HostError):
    """The model's service asks to slow down.

    Attributes:
        retry_after: Seconds that the service asks to wait, or None where it does not say.
    """

    code = "model_rate_limited"
    retryable = True

    def __init__(self, problem: str, *, remedy: str, retry_after: float | None = None) -> None:
        super().__init__(problem, remedy=remedy)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"retry_after": self.retry_after})


class ModelTimeout(HostError):
    """The model did not answer within `model_timeout` seconds."""

    code = "model_timeout"
    retryable = True


class ModelRefused(HostError):
    """The model's service refused the request; trying again changes nothing."""

    code = "model_refused"


class ContextExceeded(HostError):
    """The prompt is longer than the model's context."""

    code = "context_exceeded"


class ModelNotConfigured(HostError):
    """The model cannot be used as configured: no such model, no key, a missing file."""

    code = "model_not_configured"


class ThreadBusy(HostError):
    """Another turn owns the thread and did not end while this one waited (T4)."""

    code = "thread_busy"
    retryable = True


class LeaseLost(HostError):
    """Another process has taken this thread over; nothing more is written by this one (T4)."""

    code = "lease_lost"
    retryable = True


class StorageUnavailable(HostError):
    """A database or its folder cannot be opened, read or written."""

    code = "storage_unavailable"


class StorageHalfCopied(HostError):
    """A copy into the database was begun and has not come to its end."""

    code = "storage_half_copied"


class StorageInvalid(HostError):
    """A file is not the database that it should be."""

    code = "storage_invalid"


class SchemaTooNew(HostError):
    """The database was written by a newer version of this package."""

    code = "schema_too_new"


class RoleRequired(HostError):
    """A paused turn had a role that is not there now; the text names the tier (R13)."""

    code = "role_required"


class RoleChanged(HostError):
    """A paused turn goes on under another role than it began with (R13)."""

    code = "role_changed"


class RoleKeyMismatch(HostError):
    """A paused turn's role was noted down with another key (R13)."""

    code = "role_key_mismatch"


class ThreadPaused(HostError):
    """The thread's turn waits for a person; the text names the pauses (T4)."""

    code = "thread_paused"


class TurnTimeout(HostError):
    """The turn ran for longer than `turn_timeout` seconds; `resume()` goes on with it (T5)."""

    code = "turn_timeout"
    retryable = True


class AttachmentMissing(HostError):
    """The content of an attachment is gone, or is not what was stored."""

    code = "attachment_missing"


class GraphChanged(HostError):
    """A paused turn was begun by code that was otherwise (D15)."""

    code = "graph_changed"


# --- the developer must act -----------------------------------------------------------------------------------------


class InvalidArgument(UsageError):
    """An argument has the wrong type or value; the text names it."""

    code = "invalid_argument"


class SettingsInvalid(UsageError):
    """A setting from the arguments, the environment or the file does not fit; the text names it."""

    code = "settings_invalid"


class RoleInvalid(UsageError):
    """A role has no content, or content that is not text."""

    code = "role_invalid"


class RoleTooLong(UsageError):
    """A role's content is longer than the limit (R15)."""

    code = "role_too_long"


class RoleNotStorable(UsageError):
    """A role with `applies_to` or `exclusive` cannot be stored; the record has no place for them (R9)."""

    code = "role_not_storable"


class UnknownTier(UsageError):
    """No such tier, or not one that this call takes."""

    code = "unknown_tier"


class UnknownMessage(UsageError):
    """The message id is not one of this thread's."""

    code = "unknown_message"


class NameTaken(UsageError):
    """Two things of one kind have the same name (H10)."""

    code = "name_taken"


class FunctionInvalid(UsageError):
    """A function, worker, shape or Signature cannot be used as declared."""

    code = "function_invalid"


class MissingExtra(UsageError):
    """A part needs an extra that is not installed; the text names it (D16)."""

    code = "missing_extra"


class UnknownPause(UsageError):
    """No open pause of the thread has this id."""

    code = "unknown_pause"


class AlreadyAnswered(UsageError):
    """Somebody answered the pause first (T4)."""

    code = "already_answered"


class AnswerInvalid(UsageError):
    """An answer does not fit what a pause asks; the pause stays open."""

    code = "answer_invalid"


class NothingToResume(UsageError):
    """The thread has no turn that could go on."""

    code = "nothing_to_resume"


class NobodyToAsk(UsageError):
    """A call that asks a person was made outside any turn."""

    code = "nobody_to_ask"


class Diverged(UsageError):
    """A body that ran again took another path than the one that is recorded; nothing of the new path was done (D8)."""

    code = "diverged"


class AttachmentInvalid(UsageError):
    """An attachment cannot be read, is empty, too large, one too many, or not what it is said to be."""

    code = "attachment_invalid"


class ExportInvalid(UsageError):
    """A file is not, or no longer, what exporting a thread wrote."""

    code = "export_invalid"


class AttachmentNotTaken(UsageError):
    """The model takes no attachment of this kind."""

    code = "attachment_not_taken"


class AgentClosed(UsageError):
    """The agent was not started, or is closed."""

    code = "agent_closed"


__all__ = [
    "AgentClosed",
    "AlreadyAnswered",
    "AnswerInvalid",
    "AttachmentInvalid",
    "AttachmentMissing",
    "AttachmentNotTaken",
    "CallRefused",
    "ContextExceeded",
    "DepthExceeded",
    "Diverged",
    "EffectLost",
    "ExportInvalid",
    "FunctionInvalid",
    "GraphChanged",
    "HostError",
    "HostForbidden",
    "HostUnavailable",
    "InvalidArgument",
    "LeaseLost",
    "MissingExtra",
    "ModelFacing",
    "ModelNotConfigured",
    "ModelRateLimited",
    "ModelRefused",
    "ModelTimeout",
    "ModelUnavailable",
    "NameTaken",
    "NobodyToAsk",
    "NothingToResume",
    "OutputInvalid",
    "ParamsInvalid",
    "PauseExpired",
    "ResultInvalid",
    "RoleChanged",
    "RoleEchoed",
    "RoleInvalid",
    "RoleKeyMismatch",
    "RoleNotStorable",
    "RoleRequired",
    "RoleSourceInvalid",
    "RoleSourceUnavailable",
    "RoleTooLong",
    "SchemaTooNew",
    "SettingsInvalid",
    "StorageHalfCopied",
    "StorageInvalid",
    "StorageUnavailable",
    "TaskFailed",
    "ThreadBusy",
    "ThreadPaused",
    "TurnTimeout",
    "UnknownFunction",
    "UnknownMessage",
    "UnknownPause",
    "UnknownShape",
    "UnknownTier",
    "UnknownWorker",
    "UsageError",
    "WorldAgentError",
]
