"""A guarded conversation that follows a script, and readers that answer from a list."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.agents import scripted_agent
from worldagent import Policy, Rule, WorldAgent, tool
from worldagent.harness import Function
from worldagent.harness.gate import Predicate
from worldagent.testing import ScriptedCall, ScriptedLM

ANY = Predicate(origin="any")
WRITE = Rule(decision="approve", function="write", arguments={"to": ANY, "body": ANY})
ASK = Rule(decision="ask", function="write")


def question(kind: Any, *of: str, about: str = "which") -> dict[str, Any]:
    """A handle that asks a reader."""
    return {"$ask": about, "of": [*of], "as": kind}


class Office:
    """Makes steps, and then answers. It is guarded if its turns are.

    Args:
        steps: Its steps.
        reply: Its answer; a tuple is one answer after the other.
        answers: What readers answer, one after the other; the last one for ever. What is not a text is a reply of a
            `ScriptedLM`, such as an error.

    Attributes:
        written: The arguments of the calls of `write` that ran.
        asked: The calls of readers.
        read: What the conversation's model was sent, at each call.
    """

    def __init__(self, *steps: Mapping[str, Any], reply: Any = "Done.", answers: tuple[Any, ...] = ()) -> None:
        self.steps, self.answers = [*steps], [*answers]
        self.replies = [*reply] if isinstance(reply, tuple) else [reply]
        self.written: list[tuple[Any, Any]] = []
        self.asked: list[ScriptedCall] = []
        self.read: list[str] = []
        self.lm = ScriptedLM(self.answer)

    def agent(self, home: Path, *functions: Function, rules: tuple[Rule, ...] = (WRITE,), **more: Any) -> WorldAgent:
        """An agent with these functions, and `write`."""

        async def write(to: Any, body: Any = "") -> str:
            self.written.append((to, body))
            return "written"

        tools = [*functions, tool(risk="write")(write)]
        policy = more.pop("policy", Policy(rules=rules, default="refuse"))
        return scripted_agent(home, more.pop("lm", self.lm), tools=tools, policy=policy, **more)

    def answer(self, called: ScriptedCall) -> Any:
        """What a model says."""
        if "parts" in called.fields:
            self.asked.append(called)
            said = _next(self.answers)
            return {"answer": said} if isinstance(said, str) else said
        self.read.append(called.text)
        place = len(called.steps)
        return self.steps[place] if place < len(self.steps) else {"reply": _next(self.replies)}


def _next(said: list[Any]) -> Any:
    return said.pop(0) if len(said) > 1 else said[0]
