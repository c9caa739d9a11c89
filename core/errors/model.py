"""Errors that are reported to a model."""

from __future__ import annotations

from .base import ModelFacing


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
    """The params do not match the declared model; the text names each field."""

    code = "params_invalid"


class ResultInvalid(ModelFacing):
    """A result does not match the declared model; the text names each field."""

    code = "result_invalid"


class OutputInvalid(ModelFacing):
    """A model's output could not be read as its Signature's output fields."""

    code = "output_invalid"


class TaskFailed(ModelFacing):
    """The code of a shape or function raised an exception; only the name of its type is kept."""

    code = "task_failed"


class ToolFailed(ModelFacing):
    """A tool reports that it failed. Do not trust the text if the tool belongs to an MCP server.

    Raise it in a tool to tell the model what went wrong: the model reads `problem`.
    """

    code = "tool_failed"

    def __init__(self, problem: str, *, remedy: str = "call it with other arguments, or do without it") -> None:
        super().__init__(problem, remedy=remedy)


class PathRefused(ModelFacing):
    """A path leads out of the folders that tools can access, through `..`, a link or in another way."""

    code = "path_refused"


class AddressRefused(ModelFacing):
    """An address or one of its redirects leads to this machine or its network, which is not allowed."""

    code = "address_refused"


class CallRefused(ModelFacing):
    """A person or the policy did not allow a call."""

    code = "call_refused"


class PauseExpired(ModelFacing):
    """No answer came before the pause expired."""

    code = "pause_expired"


class EffectLost(ModelFacing):
    """A call was running when its process stopped, and a person reported that its effect did not happen (T5)."""

    code = "effect_lost"


class DepthExceeded(ModelFacing):
    """Calls are nested too deep (H4)."""

    code = "depth_exceeded"


class ToolNotAllowed(ModelFacing):
    """The calling worker or function must not call this one: it is not listed in the caller's `tools`."""

    code = "tool_not_allowed"


class CallTimeout(ModelFacing):
    """The call took longer than the function's `timeout`."""

    code = "call_timeout"


class LimitReached(ModelFacing):
    """A limit on calls, tokens, cost or time is used up; the text says which limit and whose it is."""

    code = "limit_reached"


__all__ = [
    "AddressRefused",
    "CallRefused",
    "CallTimeout",
    "DepthExceeded",
    "EffectLost",
    "LimitReached",
    "OutputInvalid",
    "ParamsInvalid",
    "PathRefused",
    "PauseExpired",
    "ResultInvalid",
    "TaskFailed",
    "ToolFailed",
    "ToolNotAllowed",
    "UnknownFunction",
    "UnknownShape",
    "UnknownWorker",
]
