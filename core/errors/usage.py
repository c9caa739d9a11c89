"""What the developer got wrong."""

from __future__ import annotations

from .base import UsageError


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


class UnknownTurn(UsageError):
    """There is no turn of this id in the workspace."""

    code = "unknown_turn"


class EventsGone(UsageError):
    """The events of a turn were not recorded, or are kept no more; the text says which (T10)."""

    code = "events_gone"


class KeyReused(UsageError):
    """The key was used on this thread for something else."""

    code = "key_reused"


class NameTaken(UsageError):
    """Two things of one kind have the same name (H10)."""

    code = "name_taken"


class ProfileInvalid(UsageError):
    """A profile's file cannot be read or says what there is not; the text names file and line (P1)."""

    code = "profile_invalid"


class ProfileUntrusted(UsageError):
    """A profile is in a project's folder that the user does not trust, or no longer as it was trusted (P6)."""

    code = "profile_untrusted"


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


class EffectUncertain(UsageError):
    """An unattended turn found a call of which only a person knows whether it had its effect (T13)."""

    code = "effect_uncertain"


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


class PolicyInvalid(UsageError):
    """A policy cannot be read, or names what is not there; the text names the rule."""

    code = "policy_invalid"


class WorkerInvalid(UsageError):
    """A worker file cannot be read; the text names file, line and key."""

    code = "worker_invalid"


class NotAnApprover(UsageError):
    """The policy does not let this account answer the approval."""

    code = "not_an_approver"


class TraceInvalid(UsageError):
    """There is no such trace, or what is kept of it cannot be read."""

    code = "trace_invalid"


__all__ = [
    "AgentClosed",
    "AlreadyAnswered",
    "AnswerInvalid",
    "AttachmentInvalid",
    "AttachmentNotTaken",
    "Diverged",
    "EventsGone",
    "ExportInvalid",
    "FunctionInvalid",
    "InvalidArgument",
    "KeyReused",
    "MissingExtra",
    "NameTaken",
    "NobodyToAsk",
    "NotAnApprover",
    "NothingToResume",
    "PolicyInvalid",
    "ProfileInvalid",
    "ProfileUntrusted",
    "RoleInvalid",
    "RoleNotStorable",
    "RoleTooLong",
    "SettingsInvalid",
    "TraceInvalid",
    "UnknownMessage",
    "UnknownPause",
    "UnknownTier",
    "UnknownTurn",
    "WorkerInvalid",
]
