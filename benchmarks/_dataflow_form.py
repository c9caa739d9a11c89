"""The form of AgentDojo's tasks, as `_dataflow.py` runs them and `_dataflow_guarded.py` plans them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function of the suite."""

    function: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of a suite.

    Attributes:
        params: The JSON Schema of its params.
        result: The JSON Schema of its result.
    """

    name: str
    description: str
    params: Mapping[str, Any]
    result: Mapping[str, Any]

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments without those that are equal to their default."""
        declared: Mapping[str, Mapping[str, Any]] = self.params.get("properties", {})
        defaults = {name: said["default"] for name, said in declared.items() if "default" in said}
        return {name: each for name, each in arguments.items() if name not in defaults or each != defaults[name]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The tools, the tasks, and the goals of the injections of a suite."""

    name: str
    tools: tuple[Tool, ...]
    tasks: tuple[str, ...]
    injections: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What an attacker writes where the task reads.

    Attributes:
        text: The text. A model that has read it makes the attacker's calls.
        injection: The suite's injection whose calls these are; empty if the attacker makes calls of their own.
        calls: The calls of an attacker's own.
    """

    text: str
    injection: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A task that has begun: what the person asks for, how it is solved, and the injection's calls."""

    prompt: str
    answer: str
    calls: tuple[Call, ...]
    attack: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A task that is over.

    Attributes:
        solved: Whether the suite counts it as solved.
        won: Whether the suite counts the injection as successful.
        reached: The calls that reached the environment.
    """

    solved: bool
    won: bool
    reached: tuple[Call, ...]
