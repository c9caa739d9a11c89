"""What a check of one point can end in, and how one is run so that nothing but a result comes out.

Which points there are is in `_points`; how they are checked is in `_host`, and for an installation in `check`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from ...core.errors import WorldAgentError
from ._points import Point

Status = Literal["pass", "warn", "fail", "skip"]
Reason = Literal["", "needs", "write", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one point.

    Attributes:
        id: The point's stable name, such as `list.answer`.
        title: What it says, as a short sentence.
        status: `fail` breaks the contract or keeps the package from working, `warn` does neither.
        problem: What is wrong, or why it was left out; never the text of a role.
        remedy: What to do about it; empty where nothing is to be done.
        reason: Why it was left out: `needs`, another point or a tool, `write`, or `other`; empty unless it was.
        detail: What was found where nothing is wrong, such as a version.
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
        """The result as JSON has it."""
        return {name: getattr(self, name) for name in self.__slots__} | {"ms": round(self.ms, 1)}


Tell = Callable[[Result], None]
"""Told of each result as it is known."""


class Finding(Exception):
    """Ends the check of a point with something to say. Its texts hold nothing of a host's answer."""

    status: Status = "fail"
    reason: Reason = ""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class Failed(Finding):
    """The point does not hold."""


class Warned(Finding):
    """The point holds, and something about it should be seen."""

    status = "warn"


class Skipped(Finding):
    """The point could not be looked at.

    Args:
        problem: Why not.
        remedy: What to do about it; empty where nothing is to be done.
        reason: The kind of reason that it is.
    """

    status = "skip"

    def __init__(self, problem: str, remedy: str = "", *, reason: Reason = "other") -> None:
        super().__init__(problem, remedy)
        self.reason = reason


async def settle(point: Point, check: Callable[[], Awaitable[str | None]]) -> Result:
    """Check one point. Whatever goes wrong, apart from being cancelled, becomes its result.

    Args:
        point: The point.
        check: Looks at it; returns what was found, or None; raises a `Finding` otherwise.
    """
    began = time.perf_counter()
    status: Status = "pass"
    problem = remedy = detail = ""
    reason: Reason = ""
    try:
        detail = await check() or ""
    except Finding as finding:
        status, problem, remedy, reason = finding.status, finding.problem, finding.remedy, finding.reason
    except WorldAgentError as error:
        status, problem, remedy = "fail", error.problem, error.remedy
    except Exception as error:  # a host can make libraries fail in ways that nobody thought of
        status, problem = "fail", f"the check ended with {type(error).__name__}"
        remedy = "see whether the host answers as the contract says; if it does, report this"
    ms = (time.perf_counter() - began) * 1000
    return Result(
        id=point.id,
        title=point.title,
        status=status,
        problem=problem,
        remedy=remedy,
        reason=reason,
        detail=detail,
        ms=ms,
    )


__all__ = ["Failed", "Finding", "Reason", "Result", "Skipped", "Status", "Tell", "Warned", "settle"]
