"""How a member finds one that it does not know: an introduction over two referrals, from one department to another.

    python examples/society_referrals.py

A developer must know whether a licence allows something. It knows its lead alone. The lead asks the World Agent, which
asks the legal lead, who knows the specialist. The program prints each message, then who knows whom as a drawing for
Mermaid, and what each member has read. The models are scripted, so no key is needed; to ask a real one:

    WORLDAGENT_LM=openai/gpt-4o OPENAI_API_KEY=your-key python examples/society_referrals.py
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import textwrap
from pathlib import Path
from typing import Any

# Otherwise dspy asks the network for a price list at its first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from dspy.utils.callback import BaseCallback

from worldagent import Policy, Storage, Trace, WorldAgent
from worldagent.members import SEND_RULES, AuthorityConfig, Gateway, InterfaceSpec, Letter, RoleSpec, WorkspaceConfig
from worldagent.members.graph import as_mermaid, graph_of
from worldagent.testing import ScriptedLM

# Id, name, parent, soul.
MEMBERS = (
    ("web-lead", "Web Lead", "", "You lead those who build web pages."),
    ("developer", "Developer", "web-lead", "You build web pages. You ask where you are not sure of the law."),
    ("legal-lead", "Legal Lead", "", "You lead those who know the law."),
    ("contracts", "Contracts Specialist", "legal-lead", "You check contracts and licences."),
)
CONTRACTS = InterfaceSpec(
    services="Checks contracts and licences.",
    input_format="The name of the licence, and what you want to do.",
    output_format="Yes or no, and what to mind.",
)
TASK = "Show the map of the city on the page. Its licence is the ODbL."
WANTED = {"reason": "May we show a map under the ODbL?", "required_capability": "licences"}
QUESTION = "The ODbL. We want to show the map on the page of a shop."


def says(field: str, to: str, content: str = "", **more: Any) -> list[dict[str, Any]]:
    """The two steps of a turn that sends one message."""
    sends = {"tool": "send_message", "arguments": {"to": to, "content": content, **more}}
    return [{field: "", "calls": [sends]}, {field: "Sent."}]


SCRIPT = [  # in the order of the turns
    *says("result", "web-lead", message_type="introduction_request", payload=WANTED),
    *says("result", "root", message_type="introduction_request", payload=WANTED),
    *says("reply", "legal-lead", message_type="introduction_request", payload=WANTED),
    *says("result", "contracts", QUESTION, reason="The map of the city is under the ODbL."),
    *says("result", "developer", "Yes. Name its authors next to it."),
    *says("result", "web-lead", "The map is there, with its authors.", message_type="status_report"),
    {"result": "Good."},
]


class Requests(BaseCallback):
    """The messages that model calls were given, each with the name of its reader."""

    def __init__(self) -> None:
        self.read: dict[tuple[str, str], None] = {}  # the steps of a turn are given the same message

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        reader = instance.signature.__name__
        self.read["root" if reader == "Converse" else reader, inputs["kwargs"]["message"]] = None


def spec(role_id: str, parent: str, soul: str) -> RoleSpec:
    given: dict[str, Any] = {"role_id": role_id, "parent_role_id": parent, "reports_to": parent or "root", "soul": soul}
    return RoleSpec(workspace="company", domains=(), operator_ids=(), authority=AuthorityConfig(), **given)


def line(letter: Letter) -> str:
    message = letter.message
    about = message.payload.get("target_id") or message.payload.get("required_capability")
    what = f"{message.message_type} ({about})" if about else message.content
    return f"{message.from_id} -> {message.to_id}: {what}"


async def main() -> None:
    requests = Requests()
    options: dict[str, Any] = {
        "lm": None if os.environ.get("WORLDAGENT_LM") else ScriptedLM(SCRIPT),
        "policy": Policy(rules=SEND_RULES),
        "trace": Trace(callbacks=[requests]),
    }
    with tempfile.TemporaryDirectory(prefix="worldagent-") as home:
        config = WorkspaceConfig(id="company", owner="charles")
        async with WorldAgent("company", society=config, storage=Storage(home=Path(home)), **options) as agent:
            society = agent.society
            for role_id, name, parent, soul in MEMBERS:
                interface = CONTRACTS if role_id == "contracts" else None
                await society.join(spec(role_id, parent, soul), name=name, interface=interface)
            await society.mail.send("web-lead", "developer", TASK)
            letters, read = await society.mail.waiting(), 0
            while await Gateway(agent).deliver():
                settled = "  [no model was asked]" if len(requests.read) == read else ""
                print(*(line(letter) + settled for letter in letters), sep="\n")
                letters, read = await society.mail.waiting(), len(requests.read)
            print(as_mermaid(await graph_of(society)))
    for role_id in ("root", *(each[0] for each in MEMBERS)):
        print(f"{role_id} reads:")
        texts = [text for reader, text in requests.read if reader == role_id]
        print(*(textwrap.indent(text, "    ") for text in texts or ["nothing"]), sep="\n    --\n")


if __name__ == "__main__":
    asyncio.run(main())
