"""The policy as data, and its files: rules over calls, of which the first that matches counts (H9)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, Literal, Self, TypeVar, cast

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ...core.errors import PolicyInvalid
from ...core.events import Risk
from ...core.files import read_limited
from ...core.pauses import MAX_WAIT_SECONDS
from ..function import CALLERS, Function
from ..yaml import LONGEST, YamlDocument, read_yaml
from .arguments import declared_keys, may_have, received, schema_of
from .labels import ATTACHMENT, CONTEXT, HOST, OWN, PERSON, Label, Steps, can_overlap, leaves
from .predicates import (
    ANY,
    Condition,
    Data,
    asks_for_origin,
    find,
    holds,
    named_origins,
    named_readers,
    origin_in,
    read_condition,
)

Decision = Literal["approve", "ask", "refuse"]
Globs = str | tuple[str, ...]
"""One glob or several; after validation always a tuple."""

_ANY = ("*",)
_WAIT: Final[Any] = Field(default=None, gt=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False, strict=True)


class Rule(Data):
    """A decision about the calls that it matches. A condition that is not set matches every call.

    Attributes:
        decision: `approve`, `ask` a person, or `refuse`.
        function: Globs over the name of the function, worker or shape that is called.
        risk: Classes of risk. A rule that approves matches if they include all classes of the function. A rule that
            asks or refuses matches if they include one of them.
        caller: Globs over callers: a worker, a shape, a function, `converse` for the conversation, `code` for the host.
        arguments: Conditions on arguments, by dotted paths: a glob for a text, a value, or a `Predicate`.
        after: Globs over untrusted functions. The rule matches only if the turn has read results of such a function.
            A rule that approves matches only if the turn has read no other untrusted results, and only a rule with
            `after` can approve in such a turn. It must also set `function` and `arguments`; one that asks or refuses
            can leave them out.
        approvers: Globs over the accounts that can answer; by default any account.
        expires: How many seconds to wait for an answer, ten years at most; by default as the policy sets it.
        times: How many calls in one turn it approves.
        seconds: How long it approves, from its first approval in the turn.
        optional: Whether the rule is valid although no known function, caller or argument matches it.
        name: Its name in traces and errors; by default its place in the policy.
    """

    decision: Decision
    function: Globs = _ANY
    risk: Risk | tuple[Risk, ...] = ()
    caller: Globs = _ANY
    arguments: dict[str, Condition] = Field(default_factory=dict)
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
            raise PydanticCustomError("nothing", "it is empty; omit it, or name at least one")
        return given

    @field_validator("arguments", mode="before")
    @classmethod
    def _said(cls, given: Any) -> Any:
        return (
            {path: read_condition(str(path), said) for path, said in given.items()}
            if isinstance(given, Mapping)
            else given
        )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problem, remedy = "", ""
        if self.decision == "approve" and self.after and (self.function == _ANY or not self.arguments):
            problem, remedy = "approves with after= but without function= and arguments=", "add both, or omit after="
        elif self.decision == "approve" and "destructive" in self.risk:
            problem, remedy = "approves destructive calls", "use decision 'ask': such calls are approved one by one"
        elif self.approvers and self.decision != "ask":
            problem, remedy = "has approvers= but does not ask", "omit approvers=, or use decision 'ask'"
        elif self.expires is not None and self.decision != "ask":
            problem, remedy = "has expires= but does not ask", "omit expires=, or use decision 'ask'"
        if problem:
            raise PolicyInvalid(f"the rule {self.name or self.decision!r} {problem}", remedy=remedy)
        return self

    def check_against(self, before: Sequence[Rule]) -> None:
        """Check the rule against the rules before it.

        Raises:
            PolicyInvalid: A rule before it has its name or matches every call.
        """
        for rule in before:
            if self.name and rule.name == self.name:
                raise PolicyInvalid(f"two rules are named {self.name!r}", remedy="give each rule a different name")
            if rule.function == rule.caller == _ANY and not (rule.arguments or rule.after or rule.risk):
                raise PolicyInvalid(
                    f"the rule {self.name or self.decision!r} is never used: {rule.name or rule.decision!r} before it "
                    "matches every call",
                    remedy="put the rule that matches every call last",
                )

    def matches_marks(self, marks: Collection[str]) -> bool:
        """Whether its `after` matches a turn that has read results of these untrusted functions."""
        found = [is_like(mark, self.after) for mark in marks]
        return any(found) and (self.decision != "approve" or all(found))

    def heeds(self, callees: Iterable[str]) -> bool:
        """Whether its `caller` matches any known caller: the host, the conversation, or one of these by name."""
        return any(is_like(name, self.caller) for name in (*callees, *CALLERS))

    def about(self, function: str, risk: tuple[Risk, ...], caller: str) -> bool:
        """Whether it can match calls of a function by a caller, with some arguments."""
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
        labels_in: Callable[[str, Any], Iterable[Label]] | None = None,
    ) -> bool:
        """Whether it matches a call, apart from `after`.

        Args:
            function: The name of the function.
            risk: Its risk.
            caller: The name of the caller.
            arguments: Its params as JSON.
            params: The model of its params; None allows any keys.
            labels_in: Returns the labels of a value in the argument of this name; None if labels are not known.
        """
        if not self.about(function, risk, caller):
            return False

        def held(path: str, said: Condition, value: Any, *, unsure: bool = False) -> bool:
            within = None if labels_in is None else partial(labels_in, path.partition(".")[0])
            return holds(said, value, unsure=unsure, labels_in=within)

        if self.decision != "approve":  # a possible match is enough to ask or refuse, but not to approve
            return all(
                any(held(path, said, value, unsure=True) for value in find(arguments, path))
                for path, said in self.arguments.items()
            )
        return not any(self.misfits(arguments, params, labels_in))

    def misfits(
        self,
        arguments: Mapping[str, Any],
        params: type[BaseModel] | None,
        labels_in: Callable[[str, Any], Iterable[Label]] | None,
    ) -> Iterator[str]:
        """Why it does not match a call of its function, one text for each argument; see `matches`."""
        schema = {} if params is None or not self.arguments else schema_of(params)
        for path, said in self.arguments.items():
            values = [*received(arguments, path, schema)]
            within = None if labels_in is None else partial(labels_in, path.partition(".")[0])
            if not any(holds(said, value, labels_in=within) for value in values):
                source = origin_in(said)
                from_there = source is None or any(source.comes_from(value, within) for value in values)
                yield f"the value of {path}" if from_there else f"where {path} comes from"
        keys = frozenset[str]() if params is None else declared_keys(params)
        if labels_in is not None and not self._reaches_readers(arguments, labels_in, schema, keys):
            yield f"who gets {', '.join(self._recipients)}"

    def covers(self, strange: Iterable[tuple[Steps, Label]]) -> bool:
        """Whether it names an origin for all values that are not the person's, and who may see those that not all may.

        Args:
            strange: The keys and places that lead to them in the arguments, and their labels.
        """
        origins = [tuple(path.split(".")) for path, said in self.arguments.items() if asks_for_origin(said)]
        named = [path for path, said in self.arguments.items() if named_readers(said)]
        # Those who get a value see who else does.
        readers = [tuple(path.split(".")) for path in (*named, *self._recipients.values())]
        return all(
            (replace(label, readers=frozenset()) == OWN or _leads_to(steps, origins))
            and (not label.readers or _leads_to(steps, readers))
            for steps, label in strange
        )

    @property
    def _recipients(self) -> dict[str, str]:
        """The arguments with those who get a value, by the arguments whose `readers` they must be among."""
        named = {path: named_readers(said) for path, said in self.arguments.items()}
        return {path: name for path, name in named.items() if name is not None and name != ANY}

    @property
    def decided(self) -> tuple[str, ...]:
        """The arguments of which it says where they come from, or who may see them."""
        asking = (path for path, said in self.arguments.items() if asks_for_origin(said) or named_readers(said))
        return tuple(path.partition(".")[0] for path in asking)

    def _reaches_readers(
        self,
        arguments: Mapping[str, Any],
        labels_in: Callable[[str, Any], Iterable[Label]],
        schema: Any,
        keys: Collection[str],
    ) -> bool:
        """Whether those who get the arguments for which it names `readers` may see all that they were made of."""
        for path, name in self._recipients.items():
            given = received(arguments, name, schema)  # keys that are not declared can be recipients, too
            recipients = [str(each) for value in given for _, each in leaves(value, keys)]
            for each in (path, name):
                for value in received(arguments, each, schema):
                    labels = (label for label in labels_in(each.partition(".")[0], value) if label.readers)
                    if not all(label.may_reach(recipients) for label in labels):
                        return False
        return True


def _leads_to(steps: Steps, paths: Iterable[tuple[str, ...]]) -> bool:
    return any(tuple(map(str, steps[: len(path)])) == path for path in paths)


class Policy(Data):
    """Rules over calls; the first one that matches counts.

    If no rule matches, calls of `read_only` functions and calls that no model influenced are approved, and `default`
    decides about all others.

    Attributes:
        rules: The rules, in their order.
        default: The decision about a call that no rule matches: `ask` or `refuse`.
        times: How many calls of a function a person's "always this turn" covers.
        seconds: How long it covers them.
        expires: How many seconds to wait for a person's answer if no rule sets it; None waits for ever.
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
            named[place].check_against(named[:place])
        object.__setattr__(self, "rules", named)
        return self

    def could_allow(self, function: str, risk: tuple[Risk, ...], caller: str) -> bool:
        """Whether it can approve a call, or ask a person about it.

        Args:
            function: The name of the function.
            risk: Its risk.
            caller: The name of the caller; the call counts as influenced by a model.
        """
        for rule in self.rules:
            if rule.about(function, risk, caller):
                if rule.decision != "refuse":
                    return True
                if not (rule.arguments or rule.after):
                    return False
        return self.default != "refuse" or risk == ("read_only",)

    def check(self, callees: Iterable[Function], absent: tuple[str, ...] = ()) -> None:
        """Refuse rules that match nothing, because they are usually misspelt.

        Args:
            callees: Everything that can be called.
            absent: What names of functions begin with that are not known now, such as those of an MCP server that
                offers nothing. Rules about them are not checked.

        Raises:
            PolicyInvalid: A rule that is not `optional` names a function, a caller, an argument or an origin that does
                not exist.
        """
        known = {callee.name: callee for callee in callees}
        for rule in self.rules:
            if not rule.optional and not any(glob.startswith(absent) for glob in several(rule.function)):
                _check(rule, known)
                _check_origins(rule, known, absent)


def _check(rule: Rule, known: Mapping[str, Function]) -> None:
    matched = [callee for name, callee in known.items() if is_like(name, rule.function)]
    problem = ""
    if not matched:
        problem = f"names the function {' or '.join(several(rule.function))!r}, which does not exist"
    elif not rule.heeds(known):
        problem = f"names the caller {' or '.join(several(rule.caller))!r}, which does not exist"
    if problem:
        raise PolicyInvalid(
            f"the rule {rule.name!r} {problem}",
            remedy=f"the known names are: {', '.join(sorted(known)) or 'none'}; or set optional on the rule",
        )
    for path in (*rule.arguments, *rule._recipients.values()):
        if not any(may_have(callee.params, path) for callee in matched):
            raise PolicyInvalid(
                f"the rule {rule.name!r} names the argument {path!r}, which none of its functions has",
                remedy="use an argument that the function declares, or set optional on the rule",
            )


def _check_origins(rule: Rule, known: Mapping[str, Function], absent: tuple[str, ...]) -> None:
    untrusted = {name: callee.fields for name, callee in known.items() if callee.untrusted}
    named = (each for said in rule.arguments.values() for each in named_origins(said))
    for glob, declared in named:
        if glob == ANY or is_like(PERSON, glob) or glob.startswith(absent):
            continue
        sources = [name for name in (*untrusted, ATTACHMENT, CONTEXT, HOST) if can_overlap(glob, f"{name}.*")]
        if not sources and ":" not in glob:  # no function has one: it is about members or accounts, who can come later
            raise PolicyInvalid(
                f"the rule {rule.name!r} names the origin {glob!r}, which does not exist",
                remedy=f"use person, any or FUNCTION.FIELD; the untrusted functions are: "
                f"{', '.join(sorted(untrusted)) or 'none'}; or set optional on the rule",
            )
        fields = [f"{name}.{each}" for name in sources for each in untrusted.get(name, ())]
        if rule.decision == "approve" and declared and not any(can_overlap(glob, each) for each in fields):
            raise PolicyInvalid(
                f"the rule {rule.name!r} names the origin {glob!r}, which is not a declared field",
                remedy=f"the declared fields are: {', '.join(fields) or 'none'}; declare it with fields= if no "
                "stranger can choose it, or set form to what the value can carry: bounded, span or words",
            )


T = TypeVar("T", bound=str)


def several(given: T | Iterable[T]) -> tuple[T, ...]:
    """Return one text or several as a tuple."""
    return cast("tuple[T, ...]", (given,) if isinstance(given, str) else tuple(given))


def is_like(name: str, globs: Globs | Iterable[str]) -> bool:
    """Whether one of the globs matches a name."""
    return any(fnmatchcase(name, glob) for glob in several(globs))


VERSION = 1

_KEYS = ("version", *Policy.model_fields)


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a YAML or JSON file.

    Args:
        path: The file. Its keys are those of `Policy`, the keys of its rules are those of `Rule`, and `version: 1` is
            allowed.

    Raises:
        PolicyInvalid: The file cannot be read; the text names the file, the line and the problem.
        MissingExtra: The extra `yaml` is not installed.
    """
    data = read_limited(path, LONGEST)
    if isinstance(data, str):
        named = repr(str(path)) if isinstance(path, str | os.PathLike) else f"of type {type(path).__name__!r}"
        raise PolicyInvalid(f"the policy {named} cannot be read: {data}", remedy="pass the path of a file")
    return policy_in(read_yaml(data, name=str(path), error=PolicyInvalid))


def policy_in(document: YamlDocument[Any], *path: str) -> Policy:
    """Read the policy in a document.

    Args:
        document: The document.
        path: The keys that lead to the policy; none if the document is the policy.

    Raises:
        WorldAgentError: The policy cannot be read; the text names the file, the line and the problem.
    """
    said = document.data
    for key in path:
        said = said[key]
    if not isinstance(said, Mapping):
        raise document.invalid("a policy must be a mapping", f"its keys are: {', '.join(_KEYS)}", *path)
    document.check_keys(said, _KEYS, "a policy", *path)
    if said.get("version", VERSION) != VERSION or isinstance(said.get("version"), bool):
        problem = f"the version {said['version']!r} is not supported"
        raise document.invalid(problem, f"write version: {VERSION}", *path, "version")
    listed = said.get("rules", [])
    if not isinstance(listed, list):
        raise document.invalid("`rules` must be a list", "begin each rule with '- decision:'", *path, "rules")
    rules = [_rule(document, (*path, "rules", place), each) for place, each in enumerate(listed)]
    for place, rule in enumerate(rules):
        document.made(partial(rule.check_against, rules[:place]), *path, "rules", place)
    others = {key: value for key, value in said.items() if key not in ("version", "rules")}
    return document.made(partial(Policy, **others, rules=tuple(rules)), *path, *list(others)[:1])


def _rule(document: YamlDocument[Any], path: tuple[str | int, ...], said: Any) -> Rule:
    if not isinstance(said, Mapping):
        raise document.invalid("a rule must be a mapping", "write keys and values, such as 'decision: ask'", *path)
    document.check_keys(said, Rule.model_fields, "a rule", *path)
    return document.made(partial(Rule, **said), *path)
