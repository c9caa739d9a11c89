"""The points of a check, and the results that they can have."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...core.errors import WorldAgentError

Status = Literal["pass", "warn", "fail", "skip"]
Reason = Literal["", "needs", "write", "other"]
When = Literal["always", "http", "stdio", "--write", "--foreign-scope", "--model"]
Check = Callable[[Any], Awaitable[str | None]]
"""Checks a point; returns a detail or None, or raises a `Finding`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one point.

    Attributes:
        id: The point's stable name, such as `list.answer`.
        title: What the point says, as a short sentence.
        status: `fail` breaks the contract or keeps the package from working, `warn` does neither.
        problem: What is wrong, or why the point was skipped; never the text of a role.
        remedy: What the user can do; empty if nothing is to be done.
        reason: Why the point was skipped: `needs` another point or a tool, `write`, or `other`; empty if it was not.
        detail: A detail of a point that holds, such as a version.
        ms: How long it took.
    """

    id: str
    title: str
    status: Status
    problem: str = ""
    remedy: str = ""
    reason: Reason = ""
    detail: str = ""
    ms: float = 0.0

    def as_object(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {"ms": round(self.ms, 1)}


Tell = Callable[[Result], None]
"""Receives each result as it is known."""


class Finding(Exception):
    """Ends the check of a point. Its texts contain nothing of a host's answer.

    Args:
        problem: What is wrong, or why the point was skipped.
        remedy: What the user can do; empty if nothing is to be done.
    """

    status: Status = "fail"
    reason: Reason = ""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class Failed(Finding):
    """The point does not hold."""


class Warned(Finding):
    """The point holds, but the user should see something about it."""

    status = "warn"


class Skipped(Finding):
    """The point could not be checked; `reason` is the kind of reason."""

    status = "skip"

    def __init__(self, problem: str, remedy: str = "", *, reason: Reason = "other") -> None:
        super().__init__(problem, remedy)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to check.

    Attributes:
        id: Its name for programs.
        title: What holds if the point passes; at most 46 characters, so that a line fits a terminal.
        check: Checks the point.
        needs: The points that must pass first.
        when: The hosts, or the option, for which it is checked.
    """

    id: str
    title: str
    check: Check
    needs: tuple[str, ...] = ()
    when: When = "always"


class Points(list[Point]):
    """Points in the order of the check."""

    def add(
        self, id: str, title: str, *, needs: tuple[str, ...] = (), when: When = "always"
    ) -> Callable[[Check], Check]:
        """Decorate the check of the next point; the arguments are those of `Point`."""

        def keep(check: Check) -> Check:
            self.append(Point(id, title, check, needs, when))
            return check

        return keep


async def settle(point: Point, check: Callable[[], Awaitable[str | None]]) -> Result:
    """Check one point. Any failure, except a cancellation, becomes its result.

    Args:
        point: The point.
        check: Checks the point; takes no arguments.
    """
    began = time.perf_counter()
    result = Result(id=point.id, title=point.title, status="pass")
    try:
        result = replace(result, detail=await check() or "")
    except Finding as found:
        result = replace(result, status=found.status, problem=found.problem, remedy=found.remedy, reason=found.reason)
    except WorldAgentError as error:
        result = replace(result, status="fail", problem=error.problem, remedy=error.remedy)
    except Exception as error:  # a host can make libraries fail in ways that no point foresees
        remedy = "see whether the host answers as the contract says; if it does, report this"
        result = replace(result, status="fail", problem=f"the check ended with {type(error).__name__}", remedy=remedy)
    return replace(result, ms=(time.perf_counter() - began) * 1000)
