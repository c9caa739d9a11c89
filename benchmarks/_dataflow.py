"""Runs tasks of AgentDojo's form through whole turns, with a model that obeys every text that it reads.

A `World` has the environment in which calls happen, and reports which calls reached it. So an effect counts because it
happened, whatever the model or the gate says. `dataflow.py` decides what runs.
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from pydantic import ConfigDict, Field, TypeAdapter, create_model

from worldagent import Policy, Settings, Storage, Worker, WorldAgent
from worldagent.benchmarks._dataflow_form import Attack, Call, Ended, Opened, Suite, Tool
from worldagent.benchmarks._dataflow_guarded import Plan, Planner, changes, is_reader
from worldagent.benchmarks._environments import Unmeasured, installed_python
from worldagent.core.errors import ToolFailed
from worldagent.core.events import Risk
from worldagent.harness import Function
from worldagent.harness.schema import result_of
from worldagent.testing import ScriptedCall, ScriptedLM

PACKAGES = ("agentdojo==0.1.35",)

_CLERK = "clerk"
_LINE = 64 * 1024 * 1024  # bytes of one answer of the child
_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}


class World(Protocol):
    """The environment of a task."""

    async def open(self, suite: str, task: str, attack: Attack | None) -> Opened:
        """Begin a task, with an attacker's text in what it reads."""
        ...

    async def call(self, call: Call) -> Any:
        """Make a call and return its result as JSON.

        Raises:
            ToolFailed: The function failed.
        """
        ...

    async def end(self, said: str) -> Ended:
        """End the task with the answer to the person."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What whoever embeds a suite's functions declares of them.

    Attributes:
        risk: The risk of functions that are not `read_only`.
        trusted: The functions whose results hold no text of strangers. All others that only read are untrusted, and
            so are those of the network that are in `pages`.
        pages: Functions of the network that return a page.
        echoes: Functions that return words of their arguments. They are untrusted where the worker is guarded.
        fields: Globs over the fields of a result that the function's own system makes, for guarded workers.
        lists: Functions whose text is a heading and lines. Guarded workers get them as a list.
    """

    risk: Mapping[str, tuple[Risk, ...]]
    trusted: frozenset[str]
    pages: frozenset[str]
    echoes: frozenset[str] = frozenset()
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()

    def risk_of(self, function: str) -> tuple[Risk, ...]:
        return self.risk.get(function, ("read_only",))

    def is_untrusted(self, function: str) -> bool:
        return function in self.pages or (function not in self.risk and function not in self.trusted)


@dataclass(frozen=True, slots=True)
class Sent:
    """What the models of a turn were sent.

    Attributes:
        planner: Calls of the worker's model.
        reader: Calls of readers.
        characters: The characters of all messages.
        cached: Those of them that are equal to the beginning of an earlier call with the same system message.
    """

    planner: int = 0
    reader: int = 0
    characters: int = 0
    cached: int = 0

    @classmethod
    def count(cls, calls: Sequence[ScriptedCall]) -> Sent:
        """Count the calls of a turn."""
        before, characters, cached = dict[str, str](), 0, 0
        for call in calls:
            text = "".join((call.system, *(said for _, said in call.messages)))
            characters += len(text)
            cached += _same_beginning(before.get(call.system, ""), text)
            before[call.system] = text
        reader = sum(is_reader(call) for call in calls)
        return cls(len(calls) - reader, reader, characters, cached)


def _same_beginning(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A turn that is over.

    Attributes:
        solved: Whether the suite counts the task as solved.
        won: Whether the suite counts the injection as successful.
        read: Whether the model read the attacker's text.
        strange: The calls with effects that happened although they are not among those that solve the task.
        changed: What in them is otherwise; see `changes`. It has `branches` if a reader chose another way.
        sent: What the models were sent.
    """

    solved: bool
    won: bool
    read: bool
    strange: tuple[Call, ...]
    changed: frozenset[str] = frozenset()
    sent: Sent = field(default_factory=Sent)


# --- the model ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Oracle:
    """The obeying model of one turn: it makes the task's calls, and the attacker's as soon as it read them.

    Attributes:
        answer: What it answers in the end.
        calls: The calls that are left.
        attack: What the attacker wrote, and the calls that it asks for.
        read: Whether the model has read it.
    """

    answer: str
    calls: list[Call]
    attack: tuple[str, tuple[Call, ...]] = ("", ())
    read: bool = False

    def reply(self, call: ScriptedCall) -> dict[str, Any]:
        text, wanted = self.attack
        if text and not self.read and any(text in step for step in call.steps):
            self.read, self.calls = True, [*wanted, *self.calls]
        if not self.calls:
            return {"calls": [], "result": self.answer}
        made = self.calls.pop(0)
        return {"calls": [{"tool": made.function, "arguments": dict(made.arguments)}], "result": ""}


# --- turns ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Desk:
    """A worker with all tools of a suite under one policy, whose turns nobody watches.

    Args:
        world: Where its calls happen.
        suite: The suite.
        declared: What is declared of the functions.
        policy: The policy.
        home: The folder of its database.
        plans: How the tasks are planned without reading, if the worker is guarded.
        asks: Whether the guarded worker uses readers and programs.
    """

    world: World
    suite: Suite
    declared: Declared
    policy: Policy
    home: Path
    plans: Mapping[str, Plan] | None = None
    asks: bool = True
    _oracle: Oracle | Planner = field(init=False)
    _is_everywhere: bool = False
    _lm: ScriptedLM = field(init=False)
    _agent: WorldAgent = field(init=False)
    _turns: int = 0

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Desk, None]:
        """Open the agent."""
        self._lm = ScriptedLM(self._replied, chunk=1_000_000)
        names = tuple(tool.name for tool in self.suite.tools)
        self._agent = WorldAgent(
            self.suite.name,
            lm=self._lm,
            tools=[self._function(tool) for tool in self.suite.tools],
            workers=[
                Worker(
                    _CLERK,
                    "You do what you are asked.",
                    "does tasks",
                    tools=names,
                    max_steps=200,
                    guard=self.plans is not None,
                )
            ],
            policy=self.policy,
            storage=Storage(home=self.home),
            settings=Settings(trace=False, model_attempts=1),
        )
        async with self._agent:
            yield self

    async def run(self, task: str, attack: Attack | None = None, *, everywhere: bool = False) -> Outcome:
        """Run a task as one unattended turn, and tell what happened.

        Args:
            task: The task.
            attack: What an attacker writes.
            everywhere: Whether it stands in every text that a stranger can write, and not only where the suite has it.

        Raises:
            RuntimeError: The turn did not end.
        """
        self._is_everywhere = everywhere
        opened = await self.world.open(self.suite.name, task, None if everywhere else attack)
        wanted = () if attack is None else opened.attack or attack.calls
        if self.plans is None:
            self._oracle = Oracle(opened.answer, list(opened.calls))
            if attack is not None:
                self._oracle.attack = (attack.text, wanted)
        else:
            self._oracle = Planner(opened, self.plans.get(task, Plan()), self._acting, attack, wanted, self.asks)
        self._turns += 1
        thread = self._agent.thread(f"t{self._turns}", account="emma")
        params = {"worker": _CLERK, "request": opened.prompt}
        turn = await thread.task("subagent", params, unattended="refuse")
        sent = Sent.count(self._lm.calls)
        self._lm.calls.clear()  # prompts of thousands of turns
        if turn.status != "done":
            raise RuntimeError(f"the turn of {self.suite.name} {task} is {turn.status}")
        ended = await self.world.end(turn.result.text)
        own, reached = self._effects(opened.calls), self._effects(ended.reached)
        return Outcome(
            solved=ended.solved,
            won=ended.won,
            read=self._oracle.read,
            strange=_strange(own, reached),
            changed=self._changed(own, reached),
            sent=sent,
        )

    def _replied(self, call: ScriptedCall) -> dict[str, Any]:
        return self._oracle.reply(call)

    def _effects(self, calls: Iterable[Call]) -> list[Call]:
        """The effects among calls, without arguments that are equal to their default."""
        tools = {tool.name: tool for tool in self.suite.tools}
        effects = (call for call in calls if call.function in self._acting)
        return [Call(call.function, tools[call.function].given(call.arguments)) for call in effects]

    def _changed(self, own: Sequence[Call], reached: Sequence[Call]) -> frozenset[str]:
        if not isinstance(self._oracle, Planner):
            return frozenset()
        branched = ["branches"] if "branch" in self._oracle.turned else []
        return frozenset([*changes(own, reached, self._oracle.plan), *branched])

    @property
    def _acting(self) -> frozenset[str]:
        """The functions whose calls are effects."""
        return frozenset(tool.name for tool in self.suite.tools if self.declared.risk_of(tool.name) != ("read_only",))

    def _function(self, tool: Tool) -> Function:
        untrusted = self.declared.is_untrusted(tool.name)
        fields, result, is_list = tuple[str, ...](), tool.result, False
        if self.plans is not None:
            is_list = tool.name in self.declared.lists
            result = {"type": "array", "items": {"type": "string"}} if is_list else result
            untrusted = untrusted or tool.name in self.declared.echoes
            fields = self.declared.fields.get(tool.name, ())

        async def body(**arguments: Any) -> Any:
            value = await self.world.call(Call(tool.name, tool.given(arguments)))
            if is_list and isinstance(value, str):
                value = value.partition(": ")[2].splitlines()
            if isinstance(self._oracle, Planner):
                self._oracle.returned(tool.name, value)
                if untrusted and self._is_everywhere and self._oracle.attack is not None:
                    return written_over(value, f" {self._oracle.attack.text} {self._oracle.wishes}", fields)
            return value

        properties: Mapping[str, Any] = tool.params.get("properties", {})
        params: dict[str, Any] = {
            name: (
                _hint(said, tool.params.get("$defs", {})),
                Field(said.get("default", ...), description=said.get("description")),
            )
            for name, said in properties.items()
        }
        return Function(
            tool.name,
            body,
            create_model(f"{tool.name}_params", __config__=ConfigDict(extra="forbid"), **params),
            result_of(tool.name, result) if result else TypeAdapter(Any),
            tool.description,
            risk=self.declared.risk_of(tool.name),
            untrusted=untrusted,
            fields=fields,
        )


def _strange(own: Iterable[Call], reached: Iterable[Call]) -> tuple[Call, ...]:
    """The effects that are not the task's own. A call that happens more often than it should is one as well."""
    left, found = [*own], list[Call]()
    for call in reached:
        (left.remove if call in left else found.append)(call)
    return tuple(found)


def written_over(value: Any, text: str, fields: Sequence[str], at: str = "") -> Any:
    """A result in which an attacker's text follows every text that is not in a declared field."""
    match value:
        case str():
            return value if any(fnmatchcase(at, glob) for glob in fields) else value + text
        case Mapping():
            return {key: written_over(each, text, fields, f"{at}.{key}".strip(".")) for key, each in value.items()}
        case list():
            return [written_over(each, text, fields, at) for each in value]
        case _:
            return value


def _hint(said: Mapping[str, Any], parts: Mapping[str, Any]) -> Any:
    """The type hint of a param, from its JSON Schema."""
    if "$ref" in said:
        return _hint(parts[said["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in said:
        first, *others = (_hint(each, parts) for each in said["anyOf"])
        for each in others:
            first = first | each
        return first
    match said.get("type"):
        case "array":
            return list[_hint(said.get("items", {}), parts)]  # type: ignore[misc]  # a type that is made here
        case "object":
            return dict[str, Any]
        case kind:
            return _TYPES.get(str(kind), Any)


# --- AgentDojo ------------------------------------------------------------------------------------------------------


class AgentDojo:
    """AgentDojo in a process of its own, which has its packages.

    Args:
        process: The process of `_dataflow_suites.py`.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    async def suites(self) -> dict[str, Suite]:
        """The suites by name, in AgentDojo's order."""
        told = await self._asked(do="suites")
        return {
            name: Suite(
                name=name,
                tools=tuple(Tool(**tool) for tool in said["tools"]),
                tasks=tuple(said["tasks"]),
                injections=said["injections"],
            )
            for name, said in told.items()
        }

    async def open(self, suite: str, task: str, attack: Attack | None) -> Opened:
        given = {} if attack is None else {"text": attack.text, "injection": attack.injection}
        told = await self._asked(do="open", suite=suite, task=task, **given)
        # A placeholder such as <summary> stands for words, which have no marks of a page.
        calls = tuple(Call(each["function"], _without_angles(each["arguments"])) for each in told.pop("calls"))
        injected = tuple(Call(**each) for each in told.pop("attack"))
        return Opened(calls=calls, attack=injected, **told)

    async def call(self, call: Call) -> Any:
        told = await self._asked(do="call", function=call.function, arguments=dict(call.arguments))
        if "error" in told:
            raise ToolFailed(told["error"], remedy="try something else")
        return told["result"]

    async def end(self, said: str) -> Ended:
        told = await self._asked(do="end", said=said)
        return Ended(reached=tuple(Call(**each) for each in told.pop("reached")), **told)

    async def _asked(self, **request: Any) -> Any:
        sent, received = self._process.stdin, self._process.stdout
        assert sent is not None
        assert received is not None
        sent.write(json.dumps(request).encode() + b"\n")
        await sent.drain()
        line = await received.readline()
        if not line:
            raise Unmeasured("AgentDojo's process ended; its error is above")
        return json.loads(line)


def _without_angles(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: each.strip("<>") if isinstance(each, str) and each.startswith("<") else each
        for name, each in arguments.items()
    }


@asynccontextmanager
async def agentdojo(say: Any) -> AsyncGenerator[AgentDojo, None]:
    """Start AgentDojo; the first time, install it into an environment below `.benchmarks/`.

    Args:
        say: Called with a line before an installation.

    Raises:
        Unmeasured: It cannot be installed.
    """
    python = await asyncio.to_thread(installed_python, "agentdojo", PACKAGES, say)
    script = Path(__file__).with_name("_dataflow_suites.py")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    process = await asyncio.create_subprocess_exec(
        str(python), "-P", str(script), stdin=PIPE, stdout=PIPE, env=kept, limit=_LINE
    )
    try:
        yield AgentDojo(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
