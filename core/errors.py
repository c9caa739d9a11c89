"""Every error this package raises on purpose, in three families by audience.

A `ModelFacing` error is reported to the model when the model caused it. A `HostError` means that the host, or the
person who runs it, must act. A `UsageError` means that the developer made a wrong call. Decide by the type how to
recover. Each text names the thing with `!r`, never the content of a role, and ends with the remedy.
"""

from __future__ import annotations

import re
from typing import ClassVar


class WorldAgentError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: A stable identifier for programs, such as `"thread_busy"` for `ThreadBusy`.
        remedy: What the reader can do about it: a sentence without its full stop.
        retryable: Whether the same call can succeed later without any change.
        remedy_for_model: Whether the model that made a failed call reads the remedy, too.
        turn_id: The turn that failed; None if the error has no turn.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    remedy_for_model: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The code is the name of the class in snake case. Subclasses of other modules have the code of their base.
        if cls.__module__ == __name__ and WorldAgentError not in cls.__bases__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
        self.turn_id: str | None = None

    @property
    def for_model(self) -> str:
        """What a model reads of it: the problem, and the remedy where that is for models."""
        return str(self) if self.remedy_for_model else self.problem

    @staticmethod
    def kind_of(code: str) -> type[WorldAgentError]:
        """The type of error with this code; `TaskFailed` for a code that this version does not know."""
        kinds = [WorldAgentError]
        for kind in kinds:  # the list grows during the loop
            if kind.code == code and kind.__module__ == __name__:
                return kind
            kinds.extend(kind.__subclasses__())
        return next(kind for kind in kinds if kind.code == "task_failed")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.problem, self.remedy, self.turn_id))


def _rebuild(kind: type[WorldAgentError], problem: str, remedy: str, turn_id: str | None) -> WorldAgentError:
    error = kind.__new__(kind)
    WorldAgentError.__init__(error, problem, remedy=remedy)
    error.turn_id = turn_id
    return error


class ModelFacing(WorldAgentError):
    """A mistake of a model. It is reported to the model that made the call; a call from your own code raises it."""


class HostError(WorldAgentError):
    """A problem that the host must solve: a store, a source or a model is down, full or misconfigured.

    Attributes:
        unsent: The path id of the call that failed before it sent anything. It is empty if nothing was sent and the
            call is not known, and None if something may have been sent.
        status: The HTTP status of the model service's answer; None if it did not answer.
        service_code: The service's code for the error, such as `model_not_found`; None if it gave none.
        request_id: The service's id of the request, which its support asks for; None if it gave none.
    """

    unsent: str | None = None
    status: int | None = None
    service_code: str | None = None
    request_id: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        details = {"status": self.status, "service_code": self.service_code, "request_id": self.request_id}
        return (*super().__reduce__(), details)


class UsageError(WorldAgentError):
    """A mistake of the developer: wrong arguments, names or settings."""


# --- of a model -------------------------------------------------------------------------------------------------------


class UnknownShape(ModelFacing):
    """No shape has this key."""


class UnknownWorker(ModelFacing):
    """No worker has this name."""


class UnknownSkill(ModelFacing):
    """No skill has this name."""


class BriefInvalid(ModelFacing):
    """A task brief lacks a required field, or has one that is invalid; the text names each (C1)."""

    remedy_for_model = True


class MessageInvalid(ModelFacing):
    """A message between members lacks what its type needs, or cannot be sent so; the text says why (C8)."""

    remedy_for_model = True


class UnknownContact(ModelFacing):
    """A member writes to, or names, one that it does not know; the text says whom to ask for an introduction (C11)."""

    remedy_for_model = True


class ChainTooLong(ModelFacing):
    """Too many messages led to one another since the last of a person or an event."""

    remedy_for_model = True


class WaitInCircle(ModelFacing):
    """A member would wait for one that waits for it, directly or through others; the text names the circle (A18)."""

    remedy_for_model = True


class MailboxFull(ModelFacing):
    """The receiver has as many messages waiting as its mailbox holds."""

    remedy_for_model = True


class UnknownTemplate(ModelFacing):
    """The workspace has no template with this id (A9)."""

    remedy_for_model = True


class SpawnForbidden(ModelFacing, PermissionError):
    """A member makes a member of a template that does not allow it (A9)."""

    remedy_for_model = True


class DraftRequired(ModelFacing):
    """A member is to be made of a draft of a template; a person must approve it first (A10)."""

    remedy_for_model = True


class RoleExists(ModelFacing):
    """The workspace has a member or person with this id already (A9)."""

    remedy_for_model = True


class RolesFull(ModelFacing):
    """The workspace has as many members as its policy allows (A9)."""

    remedy_for_model = True


class UnknownFunction(ModelFacing):
    """No function has this name."""


class ParamsInvalid(ModelFacing):
    """The params do not match the declared model; the text names each field."""


class ResultInvalid(ModelFacing):
    """A result does not match the declared model; the text names each field."""


class OutputInvalid(ModelFacing):
    """A model's output could not be read as its Signature's output fields.

    Attributes:
        fault: Which field is wrong and why, without anything that the model said; empty if that is not known.
    """

    def __init__(self, problem: str, *, remedy: str, fault: str = "") -> None:
        super().__init__(problem, remedy=remedy)
        self.fault = fault


class TaskFailed(ModelFacing):
    """The code of a shape or function raised an exception; only the name of its type is kept."""


class ToolFailed(ModelFacing):
    """A tool reports that it failed. Do not trust the text if the tool belongs to an MCP server.

    Raise it in a tool to tell the model what went wrong: the model reads `problem`.
    """

    def __init__(self, problem: str, *, remedy: str = "call it with other arguments, or do without it") -> None:
        super().__init__(problem, remedy=remedy)


class PathRefused(ModelFacing):
    """A path leads out of the folders that tools can access, through `..`, a link or in another way."""


class AddressRefused(ModelFacing):
    """An address or one of its redirects leads to this machine or its network, which is not allowed."""


class CallRefused(ModelFacing):
    """A person or the policy did not allow a call."""


class PauseExpired(ModelFacing):
    """No answer came before the pause expired."""


class EffectLost(ModelFacing):
    """A call was running when its process stopped, and a person reported that its effect did not happen (T5)."""


class DepthExceeded(ModelFacing):
    """Calls are nested too deep (H4)."""


class ToolNotAllowed(ModelFacing):
    """The calling worker or function must not call this one: it is not listed in the caller's `tools`."""


class CallTimeout(ModelFacing):
    """The call took longer than the function's `timeout`."""


class LimitReached(ModelFacing):
    """A limit on calls, tokens, cost or time is used up; the text says which limit and whose it is."""


class BudgetReached(LimitReached):
    """A budget of members is used up: the work waits until it is extended, its period is over, or it is ended (A16)."""


# --- for the host -----------------------------------------------------------------------------------------------------


class CapabilityFailed(HostError):
    """A capability raised something else than an error of this package; the text names both."""


class RoleSourceUnavailable(HostError):
    """The source of a tier did not answer, or answered too late."""

    retryable = True


class RoleSourceInvalid(HostError):
    """The source of a tier returned something that is not a role."""


class HostUnavailable(HostError):
    """A role host cannot be reached, is too slow or fails."""

    retryable = True


class HostForbidden(HostError):
    """A role host refuses the token, or refuses it for a scope."""


class McpServerUnavailable(HostError):
    """An MCP server cannot be reached, is too slow, or its connection ended in the middle of a call."""

    retryable = True


class RemoteAgentUnavailable(HostError):
    """A remote agent cannot be reached, is too slow, or fails for now."""

    retryable = True


class RemoteAgentFailed(HostError):
    """A remote agent refuses the token or the message, did not do its task, or answered what A2A does not allow."""


class ThreadUnavailable(HostError):
    """The process cannot start a thread for a function or a module that is not async. It did not run."""

    retryable = True


class SearchUnavailable(HostError):
    """`web_search` has no search service, or cannot reach it."""


class MemorySourceFailed(HostError):
    """A store of memory entries of the host raised, or returned something other than entries of its reader."""


class EmbedderFailed(HostError):
    """The embedder of memory entries raised, took too long, or returned something other than vectors that fit."""


class McpServerForbidden(HostError):
    """An MCP server refuses the token."""


class McpLoginRequired(McpServerForbidden):
    """An MCP server requires a login with OAuth: there is none, it is over, or it was refused."""

    retryable = True


class McpServerInvalid(HostError):
    """An MCP server sent an answer that the protocol or a limit does not allow."""


class RoleEchoed(HostError):
    """The model disclosed a role whose `echo` is `fail` (R16)."""


class ModelUnavailable(HostError):
    """The model's service failed or cannot be reached."""

    retryable = True


class ModelRateLimited(HostError):
    """The model's service asks to slow down.

    Attributes:
        retry_after: Seconds that the service asks to wait; None if it does not say.
    """

    retryable = True

    def __init__(self, problem: str, *, remedy: str, retry_after: float | None = None) -> None:
        super().__init__(problem, remedy=remedy)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        made, arguments, state = super().__reduce__()
        assert isinstance(state, dict), "see `HostError`"
        return (made, arguments, {**state, "retry_after": self.retry_after})


class ModelTimeout(HostError):
    """The model did not answer within `model_timeout` seconds."""

    retryable = True


class ModelRefused(HostError):
    """The model's service refused the request; a retry does not help."""


class ContextExceeded(HostError):
    """The prompt is longer than the model's context window."""


class ModelNotConfigured(HostError):
    """The model cannot be used as configured: it does not exist, or a key or a file is missing."""


class ThreadBusy(HostError):
    """Another turn owns the thread and did not end while this turn waited (T4)."""

    retryable = True


class LeaseLost(HostError):
    """Another process has taken over the thread; this process writes nothing more to it (T4)."""

    retryable = True


class StorageUnavailable(HostError):
    """A database or its folder cannot be opened, read or written."""

    retryable = True


class StorageHalfCopied(HostError):
    """A copy into the database was started and is not finished."""


class StorageInvalid(HostError):
    """A file is damaged, is empty after use or is not the expected database; or a stored row was edited."""


class SchemaTooNew(HostError):
    """A newer version of this package wrote the database, or it has a part that this version does not know."""


class RoleRequired(HostError):
    """A paused turn had a role that is now missing; the text names the tier (R13)."""


class RoleChanged(HostError):
    """A paused turn would resume under another role than the one it began with (R13)."""


class RoleKeyMismatch(HostError):
    """The role digest of a paused turn was made with another key (R13)."""


class ThreadPaused(HostError):
    """The thread's turn waits for a person or was stopped; the text says which and names the pauses (T4)."""


class TurnTimeout(HostError):
    """The turn ran for longer than `turn_timeout` seconds; `resume()` continues it (T5)."""

    retryable = True


class AttachmentMissing(HostError):
    """The content of an attachment is gone, or is not what was stored."""


class GraphChanged(HostError):
    """The code has changed since the paused turn began (D15)."""


class VersionTooOld(GraphChanged):
    """The turn needs a newer version of the package than this process has; the text says which (D15)."""


# --- of the developer -------------------------------------------------------------------------------------------------


class InvalidArgument(UsageError):
    """An argument has the wrong type or value; the text names it."""


class BudgetInvalid(InvalidArgument):
    """Limits of members are invalid, wider than those above them, or in dollars without a known price (A16)."""


class SettingsInvalid(UsageError):
    """A setting from the arguments, the environment or the file is invalid; the text names it."""


class RoleInvalid(UsageError):
    """A role has no content, its content is not text, or it is for a predictor that a module does not have."""


class RoleTooLong(UsageError):
    """A role's content is longer than the limit (R15)."""


class RoleNotStorable(UsageError):
    """A role with `applies_to`, `exclusive` or `echo` cannot be stored; the record has no fields for them (R9)."""


class UnknownTier(UsageError):
    """The tier does not exist, or this call does not accept it."""


class UnknownMessage(UsageError):
    """The thread has no message with this id."""


class UnknownTask(UsageError):
    """The conversation has no background task with this id (T17)."""


class UnknownCase(UsageError):
    """The workspace has no event, message or turn with this id, so no case either (A17)."""


class UnknownBrief(ModelFacing):
    """The workspace has no task brief with this id (A19)."""

    remedy_for_model = True


class UnknownTurn(UsageError):
    """The workspace has no turn with this id."""


class UnknownEntry(UsageError):
    """There is no memory entry with this id that the reader may see (M4)."""


class UnknownMember(UsageError):
    """The workspace has no member with this id."""


class UnknownEpisode(UsageError):
    """The workspace has no outcome of an episode with this id."""


class UnknownDraft(UsageError):
    """The workspace has no draft of a template with this id (A10)."""


class LifecycleError(UsageError):
    """A member cannot go from its state to that one; the text says which states can follow (A7)."""


class EntryChanged(UsageError):
    """A memory entry was edited since the version that an edit is of."""


class EventsGone(UsageError):
    """The events of a turn were not recorded, or were deleted since; the text says which (T10)."""


class KeyReused(UsageError):
    """The key was already used on this thread for another request."""


class NameTaken(UsageError):
    """Two things of one kind have the same name (H10)."""


class ProfileInvalid(UsageError):
    """A profile's file cannot be read, or names something that does not exist; the text names file and line (P1)."""


class WorkspaceInvalid(UsageError):
    """The file of a workspace cannot be read, or its parts do not fit; the text names file and line (A1)."""


class SkillInvalid(UsageError):
    """A skill package breaks a rule of its format, or cannot be read; the text names file and line (T6)."""


class ScheduleInvalid(UsageError):
    """A schedule never fires, names a zone that does not exist, or has another invalid field (T7)."""


class UnknownSchedule(UsageError):
    """The workspace has no schedule with this id (T7)."""


class ProfileUntrusted(UsageError):
    """A profile is in a project that the user does not trust, or has changed since the user trusted it (P6)."""


class FunctionInvalid(UsageError):
    """A function, worker, shape or Signature cannot be used as declared."""


class MissingExtra(UsageError):
    """A feature needs an extra that is not installed; the text names it (D16)."""


class UnknownPause(UsageError):
    """The thread has no open pause with this id."""


class AlreadyAnswered(UsageError):
    """The pause was already answered (T4)."""


class AnswerInvalid(UsageError):
    """An answer does not match what the pause asks for; the pause stays open."""


class NothingToResume(UsageError):
    """The thread has no turn that can be resumed."""


class NothingToSteer(UsageError):
    """No turn of the thread runs or waits, so that nothing would read the message."""


class NotSteerable(UsageError):
    """The thread's turn cannot read messages: it has no loop of a model, or it is of another account."""


class NobodyToAsk(UsageError):
    """A call that asks a person was made without a turn."""


class EffectUncertain(UsageError):
    """An unattended turn found a call whose effect may have happened; only a person can tell (T13)."""


class Diverged(UsageError):
    """Code that ran again took another path than the recorded one; no call of the new path was made (D8)."""


class AttachmentInvalid(UsageError):
    """An attachment cannot be read, is empty, is too large, is one too many, or does not match its declared type."""


class ExportInvalid(UsageError):
    """A file is not the export of a thread, or was changed after the export."""


class AttachmentNotTaken(UsageError):
    """The model does not accept attachments of this kind."""


class AgentClosed(UsageError):
    """The agent was not started, or is closed."""


class PolicyInvalid(UsageError):
    """A policy cannot be read, or names something that does not exist; the text names the rule."""


class WorkerInvalid(UsageError):
    """A worker file cannot be read; the text names file, line and key."""


class NotAnApprover(UsageError):
    """The policy does not let this account answer the approval."""


class TraceInvalid(UsageError):
    """The trace does not exist, or its records cannot be read."""


class EvalInvalid(UsageError):
    """A file of cases cannot be read, or a kept run of an eval does not exist; the text names file and line."""
