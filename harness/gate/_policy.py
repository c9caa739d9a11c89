"""The policy as data: rules over calls, of which the first that matches counts (H9). Files are read in `_file`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ...core.errors import PolicyInvalid
from ...core.events import Risk
from ...core.validation import describe_failure
from ._predicates import MISSING, Said, find, holds

Decision = Literal["approve", "ask", "refuse"]
Globs = str | tuple[str, ...]
"""One or several; read, they are several."""

_ANY = ("*",)


class _Data(BaseModel):
    """Data whose faults are a `PolicyInvalid`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
            return
        except ValidationError as failure:
            problems = describe_failure(failure)
        what = f"the rule {data['name']!r}" if isinstance(data.get("name"), str) else f"a {type(self).__name__.lower()}"
        keys = ", ".join(type(self).model_fields)
        raise PolicyInvalid(f"{what} cannot be read: {problems}", remedy=f"its keys are: {keys}")


class Rule(_Data):
    """What is decided about calls that it matches. What is left out matches everything.

    Attributes:
        decision: `approve`, `ask` a person, or `refuse`.
        function: Globs over the name of the function, worker or shape that is called.
        risk: Classes of risk. A rule that approves matches where they cover all of the function's; one that asks or
            refuses, where they share one.
        caller: Globs over who calls: a worker, a shape, a function, `converse` for the planner, `code` for the host.
        arguments: What must hold of arguments, by dotted paths: a glob for a text, a value, or a `Predicate`.
        after: Globs over untrusted functions. Such a rule counts where the turn has read what these gave; one that
            approves, where it has read nothing else that is untrusted, and only such a rule approves there. It names
            functions and arguments, too.
        approvers: Globs over the accounts that may answer; left out, anybody.
        times: How many calls in one turn it approves.
        seconds: How long it approves, from its first approval in the turn.
        optional: Whether it may match no function that there is.
        name: What it is called in traces and errors; its place in the policy, if left out.
    """

    decision: Decision
    function: Globs = _ANY
    risk: Risk | tuple[Risk, ...] = ()
    caller: Globs = _ANY
    arguments: dict[str, Said] = Field(default_factory=dict)
    after: Globs = ()
    approvers: Globs = ()
    times: int = Field(default=20, ge=1)
    seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    optional: bool = False
    name: str = ""

    @field_validator("function", "risk", "caller", "after", "approvers", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @field_validator("function", "caller")
    @classmethod
    def _some(cls, given: Globs) -> Globs:
        if not given or not all(given):
            raise ValueError("no glob")
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problem, remedy = "", ""
        if self.after and (self.function == _ANY or not self.arguments):
            problem, remedy = "has after= alone", "name function= and arguments= with it, or leave after= out"
        elif self.decision == "approve" and "destructive" in self.risk:
            problem, remedy = "approves what is destructive", "let it ask: such a call is approved one by one"
        elif self.approvers and self.decision != "ask":
            problem, remedy = "has approvers= and does not ask", "leave them out, or let it ask"
        if problem:
            raise PolicyInvalid(f"the rule {self.name or self.decision!r} {problem}", remedy=remedy)
        return self

    def follows(self, marks: Collection[str]) -> bool:
        """Whether it is about a turn that has read what these untrusted functions gave."""
        found = [is_like(mark, self.after) for mark in marks]
        return any(found) and (self.decision != "approve" or all(found))

    def matches(self, function: str, risk: tuple[Risk, ...], caller: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call is of those that it decides about, apart from what the turn has read."""
        if not is_like(function, self.function) or not is_like(caller, self.caller):
            return False
        if self.risk:
            shared = set(risk) & set(several(self.risk))
            if not shared or (self.decision == "approve" and len(shared) < len(risk)):
                return False
        for path, said in self.arguments.items():
            value = find(arguments, path)
            if value is MISSING or not holds(said, value):
                return False
        return True


class Policy(_Data):
    """Rules over calls; the first one that matches counts.

    Where none does, what is `read_only` is approved, what only the host's own code calls for is approved, and all else
    is decided by `default`.

    Attributes:
        rules: The rules, in their order.
        default: What becomes of a call that nothing matches: `ask` or `refuse`.
        times: How many calls of a function a person's "always this turn" stands for.
        seconds: How long it stands.
    """

    rules: tuple[Rule, ...] = ()
    default: Literal["ask", "refuse"] = "ask"
    times: int = Field(default=20, ge=1)
    seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _names(self) -> Self:
        named = tuple(
            rule if rule.name and not rule.name.isdigit() else rule.model_copy(update={"name": str(place)})
            for place, rule in enumerate(self.rules, 1)
        )
        names = [rule.name for rule in named]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PolicyInvalid(f"two rules are called {twice[0]!r}", remedy="give each a name of its own")
        object.__setattr__(self, "rules", named)
        return self

    def check(self, names: Iterable[str]) -> None:
        """Refuse rules that match nothing, which are most often misspelt.

        Args:
            names: All that can be called.

        Raises:
            PolicyInvalid: A rule matches none of them; the text names it.
        """
        known = sorted(names)
        for rule in self.rules:
            if not rule.optional and not any(is_like(name, rule.function) for name in known):
                wanted = " or ".join(several(rule.function))
                raise PolicyInvalid(
                    f"the rule {rule.name!r} is about {wanted!r}, and nothing is called so",
                    remedy=f"there is: {', '.join(known) or 'nothing'}; or set optional on the rule",
                )


T = TypeVar("T", bound=str)


def several(given: T | Iterable[T]) -> tuple[T, ...]:
    """One text or several, as several."""
    return cast("tuple[T, ...]", (given,) if isinstance(given, str) else tuple(given))


def is_like(name: str, globs: Globs | Iterable[str]) -> bool:
    """Whether one of the globs matches a name."""
    return any(fnmatchcase(name, glob) for glob in several(globs))


__all__ = ["Decision", "Policy", "Rule", "is_like", "several"]
