"""The policy as data: rules over calls, of which the first that matches counts (H9). Files are read in `file`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, Protocol, Self, TypeVar, cast

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...core.errors import PolicyInvalid
from ...core.events import Risk
from ...core.pauses import LONGEST_WAIT
from ..function import CALLERS
from .arguments import may_have, received, schema_of
from .data import Data
from .predicates import Said, find, holds, said_of

Decision = Literal["approve", "ask", "refuse"]
Globs = str | tuple[str, ...]
"""One or several; read, they are several."""

_ANY = ("*",)
_WAIT: Final[Any] = Field(default=None, gt=0, le=LONGEST_WAIT, allow_inf_nan=False, strict=True)


class Declared(Protocol):
    """What a policy is compared with: something that can be called."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def params(self) -> type[BaseModel]:
        """What it takes."""
        ...


class Rule(Data):
    """What is decided about calls that it matches. What is left out matches everything.

    Attributes:
        decision: `approve`, `ask` a person, or `refuse`.
        function: Globs over the name of the function, worker or shape that is called.
        risk: Classes of risk. A rule that approves matches where they cover all of the function's; one that asks or
            refuses, where they share one.
        caller: Globs over callers: a worker, a shape, a function, `converse` for the conversation, `code` for the host.
        arguments: What must hold of arguments, by dotted paths: a glob for a text, a value, or a `Predicate`.
        after: Globs over untrusted functions. Such a rule counts where the turn has read what these gave; one that
            approves, where it has read nothing else that is untrusted, and only such a rule approves there. It names
            functions and arguments, too.
        approvers: Globs over the accounts that may answer; left out, anybody.
        expires: How many seconds an answer is waited for, ten years at most; left out, as long as the policy says.
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
    expires: float | None = _WAIT
    times: int = Field(default=20, ge=1, strict=True)
    seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False, strict=True)
    optional: bool = Field(default=False, strict=True)
    name: str = ""

    @field_validator("function", "risk", "caller", "after", "approvers", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @field_validator("function", "risk", "caller", "after", "approvers")
    @classmethod
    def _some(cls, given: Globs) -> Globs:
        if not given or not all(given):
            raise PydanticCustomError("nothing", "it is empty; leave it out, or name at least one")
        return given

    @field_validator("arguments", mode="before")
    @classmethod
    def _said(cls, given: Any) -> Any:
        return {path: said_of(str(path), said) for path, said in given.items()} if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problem, remedy = "", ""
        if self.after and (self.function == _ANY or not self.arguments):
            problem, remedy = "has after= alone", "name function= and arguments= with it, or leave after= out"
        elif self.decision == "approve" and "destructive" in self.risk:
            problem, remedy = "approves what is destructive", "let it ask: such a call is approved one by one"
        elif self.approvers and self.decision != "ask":
            problem, remedy = "has approvers= and does not ask", "leave them out, or let it ask"
        elif self.expires is not None and self.decision != "ask":
            problem, remedy = "has expires= and does not ask", "leave it out, or let it ask"
        if problem:
            raise PolicyInvalid(f"the rule {self.name or self.decision!r} {problem}", remedy=remedy)
        return self

    def beside(self, before: Sequence[Rule]) -> None:
        """Refuse to stand behind rules of which one has its name, or leaves it nothing.

        Raises:
            PolicyInvalid: There is such a rule.
        """
        for rule in before:
            if self.name and rule.name == self.name:
                raise PolicyInvalid(f"two rules are called {self.name!r}", remedy="give each a name of its own")
            if rule.function == rule.caller == _ANY and not (rule.arguments or rule.after or rule.risk):
                raise PolicyInvalid(
                    f"the rule {self.name or self.decision!r} never counts: {rule.name or rule.decision!r} before it "
                    "matches every call",
                    remedy="put the rule that matches every call last",
                )

    def follows(self, marks: Collection[str]) -> bool:
        """Whether it is about a turn that has read what these untrusted functions gave."""
        found = [is_like(mark, self.after) for mark in marks]
        return any(found) and (self.decision != "approve" or all(found))

    def heeds(self, callees: Iterable[str]) -> bool:
        """Whether it can be about calls of any known caller: the host, the conversation, or one of these by name."""
        return any(is_like(name, self.caller) for name in (*callees, *CALLERS))

    def about(self, function: str, risk: tuple[Risk, ...], caller: str) -> bool:
        """Whether it can be about calls of a function by a caller, whatever their arguments are."""
        if not is_like(function, self.function) or not is_like(caller, self.caller):
            return False
        shared = set(risk) & set(several(self.risk))
        return not self.risk or (len(shared) == len(risk) if self.decision == "approve" else bool(shared))

    def matches(
        self,
        function: str,
        risk: tuple[Risk, ...],
        caller: str,
        arguments: Mapping[str, Any],
        params: type[BaseModel] | None = None,
    ) -> bool:
        """Whether a call is of those that it decides about, apart from what the turn has read.

        Args:
            function: What is called.
            risk: Its risk.
            caller: Who calls.
            arguments: Its params as JSON.
            params: What declares them; left out, they may have any keys.
        """
        if not self.about(function, risk, caller):
            return False
        if self.decision != "approve":  # what may be meant is enough to ask or refuse, and not to approve
            return all(
                any(holds(said, value, unsure=True) for value in find(arguments, path))
                for path, said in self.arguments.items()
            )
        schema = {} if params is None or not self.arguments else schema_of(params)
        return all(
            any(holds(said, value) for value in received(arguments, path, schema))
            for path, said in self.arguments.items()
        )


class Policy(Data):
    """Rules over calls; the first one that matches counts.

    Where none does, what is `read_only` is approved, what only the host's own code calls for is approved, and all else
    is decided by `default`.

    Attributes:
        rules: The rules, in their order.
        default: What becomes of a call that nothing matches: `ask` or `refuse`.
        times: How many calls of a function a person's "always this turn" stands for.
        seconds: How long it stands.
        expires: How many seconds a person's answer is waited for, where no rule says it; None is for ever.
    """

    rules: tuple[Rule, ...] = ()
    default: Literal["ask", "refuse"] = "ask"
    times: int = Field(default=20, ge=1, strict=True)
    seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False, strict=True)
    expires: float | None = _WAIT

    @model_validator(mode="after")
    def _names(self) -> Self:
        named = tuple(
            rule if rule.name and not rule.name.isdigit() else rule.model_copy(update={"name": str(place)})
            for place, rule in enumerate(self.rules, 1)
        )
        for place in range(len(named)):
            named[place].beside(named[:place])
        object.__setattr__(self, "rules", named)
        return self

    def could_allow(self, function: str, risk: tuple[Risk, ...], caller: str) -> bool:
        """Whether there can be a call that it approves, or asks a person for.

        Args:
            function: What is called.
            risk: Its risk.
            caller: Who calls, with a model that has a say in it.
        """
        for rule in self.rules:
            if rule.about(function, risk, caller):
                if rule.decision != "refuse":
                    return True
                if not (rule.arguments or rule.after):
                    return False
        return self.default != "refuse" or risk == ("read_only",)

    def check(self, callees: Iterable[Declared]) -> None:
        """Refuse rules that match nothing, which are most often misspelt.

        Args:
            callees: All that can be called.

        Raises:
            PolicyInvalid: A rule names what is not there: what is called, who calls, or an argument.
        """
        known = {callee.name: callee for callee in callees}
        for rule in self.rules:
            if not rule.optional:
                _check(rule, known)


def _check(rule: Rule, known: Mapping[str, Declared]) -> None:
    matched = [callee for name, callee in known.items() if is_like(name, rule.function)]
    problem = ""
    if not matched:
        problem = f"is about {' or '.join(several(rule.function))!r}, and nothing is called so"
    elif not rule.heeds(known):
        problem = f"is about the caller {' or '.join(several(rule.caller))!r}, and nothing that calls is called so"
    if problem:
        raise PolicyInvalid(
            f"the rule {rule.name!r} {problem}",
            remedy=f"there is: {', '.join(sorted(known)) or 'nothing'}; or set optional on the rule",
        )
    for path in rule.arguments:
        if not any(may_have(callee.params, path) for callee in matched):
            raise PolicyInvalid(
                f"the rule {rule.name!r} is about the argument {path!r}, and nothing that it is about has one",
                remedy="look at what the function declares; or set optional on the rule",
            )


T = TypeVar("T", bound=str)


def several(given: T | Iterable[T]) -> tuple[T, ...]:
    """One text or several, as several."""
    return cast("tuple[T, ...]", (given,) if isinstance(given, str) else tuple(given))


def is_like(name: str, globs: Globs | Iterable[str]) -> bool:
    """Whether one of the globs matches a name."""
    return any(fnmatchcase(name, glob) for glob in several(globs))


__all__ = ["Decision", "Policy", "Rule", "is_like", "several"]
