"""What a model is told of."""

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


class ToolFailed(ModelFacing):
    """A tool says that it failed; where it is of an MCP server, what it says of that is not to be trusted.

    Raise it in a tool to tell the model what went wrong: it reads `problem`.
    """

    code = "tool_failed"

    def __init__(self, problem: str, *, remedy: str = "call it with other arguments, or do without it") -> None:
        super().__init__(problem, remedy=remedy)


class PathRefused(ModelFacing):
    """A path leaves the folders that tools may look into, by `..`, a link or otherwise."""

    code = "path_refused"


class AddressRefused(ModelFacing):
    """An address leads into the machine or its network, itself or by a redirect, and nobody allowed that."""

    code = "address_refused"


class CallRefused(ModelFacing):
    """A person or the policy did not allow a call."""

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


class ToolNotAllowed(ModelFacing):
    """The worker or function that calls may not call this one: it is not among its `tools`."""

    code = "tool_not_allowed"


class CallTimeout(ModelFacing):
    """The call took longer than the function's `timeout`."""

    code = "call_timeout"


class LimitReached(ModelFacing):
    """A limit in calls, tokens, cost or time is used up; the text says which, and whose it is."""

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
