"""Trees of calls run as real turns, with a scripted model in the workers and a person who answers, over restarts.

What should come of them is said by `gate_model`, which knows nothing of this.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.agents import Muse, Nothing, scripted_agent
from support.agents import Said as Gave
from support.gate_model import TOOLS, Asked, Line, Node, Said
from worldagent import WorldAgent
from worldagent.agent import Turn
from worldagent.core.errors import CallRefused
from worldagent.core.pauses import Approve, Pause, Reject
from worldagent.graphs import Shape, TaskContext
from worldagent.graphs.shapes import map_shape
from worldagent.harness import CallContext, Function, Policy, Worker, flow, tool
from worldagent.harness.gate import Predicate, Rule
from worldagent.testing import ScriptedCall, ScriptedLM

_MOST_RUNS = 60
_WHO = re.compile(r"<(worker\d+)>")
_THREADS = itertools.count(1)


@dataclass(kw_only=True)
class Person:
    """Who answers, and when.

    Attributes:
        says: What they say to a function with a path; approve, if left out.
        second: What they say where the policy refused what they put in its place.
        seed: Says how many pauses are answered at once, in which order, and whether the agent is opened anew before.
        asked: What they were asked, in order.
    """

    says: Mapping[tuple[str, str], Said]
    second: str = "approve"
    seed: int = 0
    asked: list[Asked] = field(default_factory=list)
    _seen: set[tuple[str, str | None]] = field(default_factory=set)

    def see(self, pauses: Sequence[Pause]) -> None:
        """Note what is asked, once each time that it is asked."""
        for pause in pauses:
            if (pause.id, pause.problem) not in self._seen:
                self._seen.add((pause.id, pause.problem))
                path = str(pause.arguments.get("path", ""))
                self.asked.append(Asked(function=pause.function, path=path, caller=pause.caller))

    def answer(self, pause: Pause) -> Approve | Reject:
        """What they say to one pause, for what they saw of it."""
        said: str = self.says.get((pause.function, str(pause.arguments.get("path", ""))), "approve")
        if said in ("notes/changed", "etc/changed"):
            if pause.problem is None:
                return Approve(arguments={"path": said}, hash=pause.hash)
            said = self.second
        if said == "reject":
            return Reject("no")
        return Approve(always=_ALWAYS.get(said, False), hash=pause.hash)


_ALWAYS: Mapping[str, Any] = {"always": True, "any": "any"}


@dataclass(kw_only=True)
class World:
    """An agent's functions, workers and shapes for one tree, and what they did.

    Attributes:
        root: The tree.
        done: What happened, in order, over all processes.
        plug: A function in the place of `plug.put`, such as one of a real server.
    """

    root: Node
    done: list[tuple[str, str]] = field(default_factory=list)

    def agent(self, home: Path, policy: Policy, **more: Any) -> WorldAgent:
        """An agent that has all of it."""
        nodes = list(_below(self.root))
        return scripted_agent(
            home,
            ScriptedLM(self._reply),
            tools=[*self._leaves(), *(self._flow(each) for each in nodes if each.kind == "flow")],
            shapes=[map_shape(), *(self._shape(each) for each in nodes if each.kind in ("shape", "thinking"))],
            workers=[self._worker(each) for each in nodes if each.kind == "worker"],
            policy=policy,
            **more,
        )

    def _leaves(self) -> Iterator[Function]:
        for name, what in TOOLS.items():
            options: dict[str, Any] = {} if name == "unsaid" else {"risk": sorted(what.risk)}
            yield self._leaf(name, untrusted=what.untrusted, approval=what.approval, **options)

    def _leaf(self, name: str, **options: Any) -> Function:
        async def body(path: str) -> str:
            self.done.append((name, path))
            return "Fine."

        made: Function = tool(name=name, **options)(body)
        return made

    def _flow(self, node: Node) -> Function:
        async def body(ctx: CallContext) -> str:
            await _made(node, ctx.call)
            return "Fine."

        made: Function = flow(name=node.name)(body)
        return made

    def _shape(self, node: Node) -> Shape[Any, Any]:
        async def run(params: Nothing, ctx: TaskContext) -> Gave:
            if node.kind == "thinking":
                await ctx.predict(Muse, about="it")
            await _made(node, ctx.call)
            return Gave(text="Fine.")

        entry = Muse if node.kind == "thinking" else None
        return Shape(node.name, Nothing, Gave, run, entry=entry, description="works")

    def _worker(self, node: Node) -> Worker:
        return Worker(node.name, f"You are <{node.name}>.", "works", tools=tuple(each.name for each in node.children))

    # --- the model ---------------------------------------------------------------------------------------------------

    def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        if "about" in call.fields:
            return {"thought": "Hm."}
        who = _WHO.search(call.system)
        if who is not None:
            return self._worked(next(each for each in _below(self.root) if each.name == who[1]), call)
        if call.steps:  # what came of the tree is there
            return {"reply": "Fine."}
        to = self.root.name
        what: dict[str, Any] = {"request": "go"} if self.root.kind == "worker" else {}
        return {"reply": "", "calls": [{"tool": to, "arguments": what}]}

    @staticmethod
    def _worked(node: Node, call: ScriptedCall) -> dict[str, Any]:
        calls = [{"tool": each.name, "arguments": _input(each)} for each in node.children]
        made = sum("You called" in text for _, text in call.messages[:-1])
        wanted = calls[made:] if node.together else calls[made : made + 1]
        return {"calls": wanted, "result": ""} if wanted else {"calls": [], "result": "Fine."}


def policy_of(lines: Sequence[Line], default: Any, times: int) -> Policy:
    """The policy that lines stand for."""
    return Policy(rules=tuple(_rule(line) for line in lines), default=default, times=times)


def _rule(line: Line) -> Rule:
    arguments: dict[str, Any] = {}
    if line.path is not None:
        arguments["path"] = line.path
    if line.under is not None:
        arguments["path"] = Predicate(under=line.under)
    more: dict[str, Any] = {"risk": tuple(sorted(line.risk)), "after": line.after}
    return Rule(
        decision=line.decision,
        function=line.function,
        caller=line.caller,
        arguments=arguments,
        times=line.times,
        optional=True,
        **{name: said for name, said in more.items() if said},
    )


async def play(world: World, home: Path, policy: Policy, person: Person, *, planned: bool, **more: Any) -> str:
    """Run a turn to its end: how it ended, `done` or the code of its error.

    Args:
        world: What there is, and gets what happens.
        home: Where the agent keeps its things.
        policy: Its policy.
        person: Who answers.
        planned: Whether the planner dispatches the tree, or the host's own code.
        more: For the agent.
    """
    dice = random.Random(person.seed)
    name = f"t{next(_THREADS)}"
    begun = False
    turn: Turn | None = None
    for _ in range(_MOST_RUNS):
        async with world.agent(home, policy, **more) as agent:
            thread = agent.thread(name)
            try:
                while True:
                    if not begun:
                        begun = True
                        turn = await (thread.converse("Go.") if planned else thread.task(world.root.name, {}))
                    else:
                        assert turn is not None
                        turn = await thread.resume(_answers(turn.pauses, person, dice))
                    if turn.status != "paused":
                        return turn.status
                    person.see(turn.pauses)
                    if dice.random() < 0.4:
                        break
            except CallRefused as error:
                return error.code
    raise AssertionError("the turn comes to no end")


def _answers(pauses: Sequence[Pause], person: Person, dice: random.Random) -> dict[str, Any]:
    """Answers to some of the pauses, at least one."""
    chosen = dice.sample(list(pauses), dice.randint(1, len(pauses)))
    return {pause.id: person.answer(pause) for pause in chosen}


async def _made(node: Node, call: Callable[..., Awaitable[Any]]) -> None:
    """Make a node's calls."""

    async def one(place: int, child: Node) -> None:
        try:
            # Equal calls of branches need to be told apart; those of a sequence are told apart by where they stand.
            await call(child.name, _input(child), **({"key": str(place)} if node.together else {}))
        except CallRefused:
            if node.brittle:
                raise

    if node.together:
        await asyncio.gather(*(one(place, child) for place, child in enumerate(node.children)))
        return
    for place, child in enumerate(node.children):
        await one(place, child)


def _input(node: Node) -> dict[str, Any]:
    match node.kind:
        case "leaf":
            return {"path": node.path}
        case "worker":
            return {"request": "go"}
        case "map":
            return {"shape": node.children[0].name, "items": [{}] * node.times}
        case _:
            return {}


def _below(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _below(child)


__all__ = ["Person", "World", "play", "policy_of"]
