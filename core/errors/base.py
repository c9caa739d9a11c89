"""What all errors have in common, and the three families. The errors themselves are in the modules beside this one."""

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
            if kind.code == code and kind.__module__.rpartition(".")[0] == __package__:
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
    """What a model got wrong. Whoever called on the model's behalf tells it so; a developer's own call just raises."""


class HostError(WorldAgentError):
    """What the host must act on: a store, a source or a model that is down, full or misconfigured.

    Attributes:
        unsent: The path id of the call that failed with it before anything was sent for that; empty where nothing was
            sent and the call is not known, None where something may have been.
        status: The HTTP status that a model's service answered with, where it answered.
        service_code: The service's own code of the error, such as `model_not_found`, where it gave one.
        request_id: The id that the service gave the request, which its support asks for, where it gave one.
    """

    unsent: str | None = None
    status: int | None = None
    service_code: str | None = None
    request_id: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        told = {"status": self.status, "service_code": self.service_code, "request_id": self.request_id}
        return (*super().__reduce__(), told)


class UsageError(WorldAgentError):
    """What the developer got wrong: arguments, names, settings."""


__all__ = ["HostError", "ModelFacing", "UsageError", "WorldAgentError"]
