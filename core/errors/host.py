"""Errors that the host must act on."""

from __future__ import annotations

from .base import HostError


class RoleSourceUnavailable(HostError):
    """The source of a tier did not answer, or answered too late."""

    code = "role_source_unavailable"
    retryable = True


class RoleSourceInvalid(HostError):
    """The source of a tier returned something that is not a role."""

    code = "role_source_invalid"


class HostUnavailable(HostError):
    """A role host cannot be reached, is too slow or fails."""

    code = "host_unavailable"
    retryable = True


class HostForbidden(HostError):
    """A role host refuses the token, or refuses it for a scope."""

    code = "host_forbidden"


class McpServerUnavailable(HostError):
    """An MCP server cannot be reached, is too slow, or its connection ended in the middle of a call."""

    code = "mcp_server_unavailable"
    retryable = True


class SearchUnavailable(HostError):
    """`web_search` has no search service, or cannot reach it."""

    code = "search_unavailable"


class McpServerForbidden(HostError):
    """An MCP server refuses the token."""

    code = "mcp_server_forbidden"


class McpServerInvalid(HostError):
    """An MCP server sent an answer that the protocol or a limit does not allow."""

    code = "mcp_server_invalid"


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
        retry_after: Seconds that the service asks to wait; None if it does not say.
    """

    code = "model_rate_limited"
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

    code = "model_timeout"
    retryable = True


class ModelRefused(HostError):
    """The model's service refused the request; a retry does not help."""

    code = "model_refused"


class ContextExceeded(HostError):
    """The prompt is longer than the model's context window."""

    code = "context_exceeded"


class ModelNotConfigured(HostError):
    """The model cannot be used as configured: it does not exist, or a key or a file is missing."""

    code = "model_not_configured"


class ThreadBusy(HostError):
    """Another turn owns the thread and did not end while this turn waited (T4)."""

    code = "thread_busy"
    retryable = True


class LeaseLost(HostError):
    """Another process has taken over the thread; this process writes nothing more to it (T4)."""

    code = "lease_lost"
    retryable = True


class StorageUnavailable(HostError):
    """A database or its folder cannot be opened, read or written."""

    code = "storage_unavailable"
    retryable = True


class StorageHalfCopied(HostError):
    """A copy into the database was started and is not finished."""

    code = "storage_half_copied"


class StorageInvalid(HostError):
    """A file is damaged, is empty after use or is not the expected database; or a stored row was edited."""

    code = "storage_invalid"


class SchemaTooNew(HostError):
    """A newer version of this package wrote the database, or it has a part that this version does not know."""

    code = "schema_too_new"


class RoleRequired(HostError):
    """A paused turn had a role that is now missing; the text names the tier (R13)."""

    code = "role_required"


class RoleChanged(HostError):
    """A paused turn would resume under another role than the one it began with (R13)."""

    code = "role_changed"


class RoleKeyMismatch(HostError):
    """The role digest of a paused turn was made with another key (R13)."""

    code = "role_key_mismatch"


class ThreadPaused(HostError):
    """The thread's turn waits for a person or was stopped; the text says which and names the pauses (T4)."""

    code = "thread_paused"


class TurnTimeout(HostError):
    """The turn ran for longer than `turn_timeout` seconds; `resume()` continues it (T5)."""

    code = "turn_timeout"
    retryable = True


class AttachmentMissing(HostError):
    """The content of an attachment is gone, or is not what was stored."""

    code = "attachment_missing"


class GraphChanged(HostError):
    """The code has changed since the paused turn began (D15)."""

    code = "graph_changed"


__all__ = [
    "AttachmentMissing",
    "ContextExceeded",
    "GraphChanged",
    "HostForbidden",
    "HostUnavailable",
    "LeaseLost",
    "McpServerForbidden",
    "McpServerInvalid",
    "McpServerUnavailable",
    "ModelNotConfigured",
    "ModelRateLimited",
    "ModelRefused",
    "ModelTimeout",
    "ModelUnavailable",
    "RoleChanged",
    "RoleEchoed",
    "RoleKeyMismatch",
    "RoleRequired",
    "RoleSourceInvalid",
    "RoleSourceUnavailable",
    "SchemaTooNew",
    "SearchUnavailable",
    "StorageHalfCopied",
    "StorageInvalid",
    "StorageUnavailable",
    "ThreadBusy",
    "ThreadPaused",
    "TurnTimeout",
]
