"""Errors for mistakes of the developer."""

from __future__ import annotations

from .base import UsageError


class InvalidArgument(UsageError):
    """An argument has the wrong type or value; the text names it."""

    code = "invalid_argument"


class SettingsInvalid(UsageError):
    """A setting from the arguments, the environment or the file is invalid; the text names it."""

    code = "settings_invalid"


class RoleInvalid(UsageError):
    """A role has no content, or its content is not text."""

    code = "role_invalid"


class RoleTooLong(UsageError):
    """A role's content is longer than the limit (R15)."""

    code = "role_too_long"


class RoleNotStorable(UsageError):
    """A role with `applies_to` or `exclusive` cannot be stored; the stored record has no fields for them (R9)."""

    code = "role_not_storable"


class UnknownTier(UsageError):
    """The tier does not exist, or this call does not accept it."""

    code = "unknown_tier"


class UnknownMessage(UsageError):
    """The thread has no message with this id."""

    code = "unknown_message"


class UnknownTurn(UsageError):
    """The workspace has no turn with this id."""

    code = "unknown_turn"


class EventsGone(UsageError):
    """The events of a turn were not recorded, or were deleted since; the text says which (T10)."""

    code = "events_gone"


class KeyReused(UsageError):
    """The key was already used on this thread for another request."""

    code = "key_reused"


class NameTaken(UsageError):
    """Two things of one kind have the same name (H10)."""

    code = "name_taken"


class ProfileInvalid(UsageError):
    """A profile's file cannot be read, or names something that does not exist; the text names file and line (P1)."""

    code = "profile_invalid"


class ProfileUntrusted(UsageError):
    """A profile is in a project that the user does not trust, or has changed since the user trusted it (P6)."""

    code = "profile_untrusted"


class FunctionInvalid(UsageError):
    """A function, worker, shape or Signature cannot be used as declared."""

    code = "function_invalid"


class MissingExtra(UsageError):
    """A feature needs an extra that is not installed; the text names it (D16)."""

    code = "missing_extra"


class UnknownPause(UsageError):
    """The thread has no open pause with this id."""

    code = "unknown_pause"


class AlreadyAnswered(UsageError):
    """The pause was already answered (T4)."""

    code = "already_answered"


class AnswerInvalid(UsageError):
    """An answer does not match what the pause asks for; the pause stays open."""

    code = "answer_invalid"


class NothingToResume(UsageError):
    """The thread has no turn that can be resumed."""

    code = "nothing_to_resume"


class NobodyToAsk(UsageError):
    """A call that asks a person was made without a turn."""

    code = "nobody_to_ask"


class EffectUncertain(UsageError):
    """An unattended turn found a call whose effect may have happened; only a person can tell (T13)."""

    code = "effect_uncertain"


class Diverged(UsageError):
    """Code that ran again took another path than the recorded one; no call of the new path was made (D8)."""

    code = "diverged"


class AttachmentInvalid(UsageError):
    """An attachment cannot be read, is empty, is too large, is one too many, or does not match its declared type."""

    code = "attachment_invalid"


class ExportInvalid(UsageError):
    """A file is not the export of a thread, or was changed after the export."""

    code = "export_invalid"


class AttachmentNotTaken(UsageError):
    """The model does not accept attachments of this kind."""

    code = "attachment_not_taken"


class AgentClosed(UsageError):
    """The agent was not started, or is closed."""

    code = "agent_closed"


class PolicyInvalid(UsageError):
    """A policy cannot be read, or names something that does not exist; the text names the rule."""

    code = "policy_invalid"


class WorkerInvalid(UsageError):
    """A worker file cannot be read; the text names file, line and key."""

    code = "worker_invalid"


class NotAnApprover(UsageError):
    """The policy does not let this account answer the approval."""

    code = "not_an_approver"


class TraceInvalid(UsageError):
    """The trace does not exist, or its records cannot be read."""

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
