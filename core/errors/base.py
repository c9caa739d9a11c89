"""The base of all errors, and the three families. The other modules of this folder define the errors themselves."""

from __future__ import annotations

from typing import ClassVar


class WorldAgentError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: A stable identifier for programs, such as `"thread_busy"`.
        remedy: What the reader can do about it: a sentence without its full stop.
        retryable: Whether the same call can succeed later without any change.
        turn_id: The turn that failed; None if the error has no turn.
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
        """The type of error with this code; `TaskFailed` for a code that this version does not know."""
        kinds = [WorldAgentError]
        for kind in kinds:  # the list grows during the loop
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


__all__ = ["HostError", "ModelFacing", "UsageError", "WorldAgentError"]
