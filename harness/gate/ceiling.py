"""Ceilings: what a worker can reach at most, itself and through everything that it calls (A9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, Self, get_args

from pydantic import field_validator

from ...core.events import Risk
from ..function import READ_ONLY, Function
from .policy import Globs, is_like, several
from .predicates import Data

Authority = Literal["forbidden", "needs_approval", "autonomous"]
"""How far a call can go under a ceiling, from the lowest to the highest."""


def has_effects(callee: Function) -> bool:
    """Whether a call could have effects itself: workers and shapes have none but those of the calls that they make."""
    return callee.risk != READ_ONLY and callee.kind in ("leaf", "flow")


_ORDER: Final[tuple[Authority, ...]] = get_args(Authority)
MAX_NAMES: Final = 20  # names in a reason


class Ceiling(Data):
    """What a worker can reach at most, itself and through everything that it calls, at any depth.

    A ceiling narrows what the policies decide. It never approves a call.

    Attributes:
        functions: Globs over the functions, workers and shapes that it can reach. Calls of all others are refused.
        risk: The classes of risk that it can reach, in addition to `read_only`. A call of a function with another class
            is refused.
        authority: Authorities by globs over the names and the capabilities of functions; None sets none. `forbidden`
            refuses a call, `needs_approval` asks even if a rule approves, and with `autonomous` the policies decide.
            The lowest of several that match counts. A function that none matches needs approval, unless it is
            `read_only`.
        dry_run: Whether a call of a function with effects runs the function's `dry_run` instead, without approval. A
            function without one is refused, and what a policy or a ceiling refuses stays refused.
        parent: A further ceiling that also counts, such as that of the worker that made this one.
        name: Whose it is, for errors and traces. A worker gives its own name to a ceiling without one.
    """

    functions: Globs = ("*",)
    risk: Risk | tuple[Risk, ...] = get_args(Risk)
    authority: dict[str, Authority] | None = None
    dry_run: bool = False
    parent: Ceiling | None = None
    name: str = ""

    @field_validator("functions", "risk", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    def named(self, name: str) -> Self:
        """Return the ceiling with this name for it and its parents, if they have none."""
        parent = None if self.parent is None else self.parent.named(name)
        return self.model_copy(update={"name": self.name or name, "parent": parent})

    def lineage(self) -> Iterator[Ceiling]:
        """Return it and its parents."""
        ceiling: Ceiling | None = self
        while ceiling is not None:
            yield ceiling
            ceiling = ceiling.parent

    def authority_over(self, callee: Function) -> tuple[Authority, str]:
        """Return how far calls of a function can go under it, without its parents, and what it says about them.

        Args:
            callee: The function.
        """
        if not is_like(callee.name, self.functions):
            some = several(self.functions)
            more = ", ..." if len(some) > MAX_NAMES else ""
            return "forbidden", f"reaches only: {', '.join(some[:MAX_NAMES]) or 'nothing'}{more}"
        if callee.risk != READ_ONLY and not set(callee.risk) <= set(self.risk):
            beyond = next(each for each in callee.risk if each not in self.risk)
            return "forbidden", f"does not reach the risk {beyond!r}"
        if self.dry_run and has_effects(callee) and callee.dry_run is None:
            return "forbidden", "allows dry runs only, and it has none"
        if self.authority is None:
            return "autonomous", ""
        names = (callee.name, *callee.capabilities)
        found: list[Authority] = [
            each for glob, each in self.authority.items() if any(is_like(name, glob) for name in names)
        ]
        if not found:
            only_reads = callee.risk == READ_ONLY
            return ("autonomous", "") if only_reads else ("needs_approval", "does not list it, so it requires approval")
        lowest = min(found, key=_ORDER.index)
        return lowest, "forbids it" if lowest == "forbidden" else "requires approval"
