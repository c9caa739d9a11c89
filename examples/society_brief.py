"""What a child knows of its work: a wish for a static web page, passed on without a task brief and with one.

    python examples/society_brief.py

A user wants a page without any framework, and the World Agent makes a developer for it. The developer knows what it is
told, and nothing else. The program prints what its model was given. The models are scripted, so no key is needed; to
ask a real one, which may write a brief the first time, too:

    WORLDAGENT_LM=openai/gpt-4o OPENAI_API_KEY=your-key python examples/society_brief.py
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Literal

# Otherwise dspy asks the network for a price list at its first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from dspy.utils.callback import BaseCallback

from worldagent import Policy, Rule, Storage, Trace, WorldAgent
from worldagent.members import SEND_RULES, AuthorityConfig, Gateway, RoleTemplate, WorkspaceConfig, WorkspacePolicy
from worldagent.testing import ScriptedCall, ScriptedLM

WISH = "Our menu as a static web page, please: no framework, it opens from a file. The dishes are in menu.csv."
MUST_ARRIVE = ("static", "framework", "from a file", "menu.csv")
DEVELOPER = RoleTemplate(
    template_id="developer",
    name_pattern="Developer {name}",
    soul_template="You build web pages. Your name is {name}.",
    domains=("web",),
    authority=AuthorityConfig(),
    operator_ids=(),
    parameters=("name",),
    allowed_spawners=("root",),
)
RUNS: dict[Literal["required", "derived"], str] = {
    "derived": "a missing brief is made of the template",
    "required": "a child without a brief is refused (the default)",
}
SPAWN = {"template": "developer", "params": {"name": "Dana"}}
BRIEF = {
    "objective": "A web page that shows the menu.",
    "constraints": "A static web page, no framework.",
    "inputs": "menu.csv, with the dishes.",
    "outputs": "index.html",
    "completion_criteria": "It opens from a file and shows all dishes.",
}


def scripted(call: ScriptedCall) -> dict[str, Any]:
    """What the models say: the World Agent is in a hurry, and the developer decides by what it reads."""
    told, done = call.fields["message"], call.steps[-1] if call.steps else ""
    if "task" in call.fields:  # a field of members alone
        built = "index.html, without a script" if "no framework" in told else "a React project of 1,200 packages"
        report = {"to": "root", "content": f"I built {built}.", "message_type": "status_report"}
        return {"result": "Reported."} if done else calls("send_message", report, field="result")
    if told != WISH or "lacks" not in done:
        return {"reply": "Dana builds it."} if done or told != WISH else calls("spawn_agent", SPAWN)
    return calls("spawn_agent", SPAWN | {"brief": BRIEF})


def calls(tool: str, arguments: dict[str, Any], *, field: str = "reply") -> dict[str, Any]:
    return {field: "", "calls": [{"tool": tool, "arguments": arguments}]}


class Requests(BaseCallback):
    """The messages that model calls were given, each with the name of its reader."""

    def __init__(self) -> None:
        self.read: dict[tuple[str, str], None] = {}  # the steps of a turn are given the same message

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        reader = instance.signature.__name__
        self.read["root" if reader == "Converse" else reader, inputs["kwargs"]["message"]] = None


async def run(brief: Literal["derived", "required"], home: Path) -> None:
    requests = Requests()
    config = WorkspaceConfig(
        id="studio", owner="charles", policy=WorkspacePolicy(brief=brief), role_templates={"developer": DEVELOPER}
    )
    options: dict[str, Any] = {
        "lm": None if os.environ.get("WORLDAGENT_LM") else ScriptedLM(scripted),
        "policy": Policy(rules=(*SEND_RULES, Rule(decision="approve", function="spawn_agent"))),
        "trace": Trace(callbacks=[requests]),
    }
    async with WorldAgent("studio", society=config, storage=Storage(home=home), **options) as agent:
        async with agent.thread("chat", account="charles").stream(WISH) as stream:
            async for event in stream:
                if event.type == "call_ended":
                    print("the World Agent calls spawn_agent:", event.code or "done")
        print("the World Agent answers:", stream.turn.text)
        while await Gateway(agent).deliver():
            pass
    for reader, text in requests.read:
        print(f"{reader} reads:", textwrap.indent(text, "    "), sep="\n")
        if reader != "root":
            lost = [each for each in MUST_ARRIVE if each not in text]
            print("lost on the way:", ", ".join(lost) or "nothing")


async def main() -> None:
    for brief, title in RUNS.items():
        print(f"--- brief={brief!r}: {title}")
        with tempfile.TemporaryDirectory(prefix="worldagent-") as home:
            await run(brief, Path(home))


if __name__ == "__main__":
    asyncio.run(main())
