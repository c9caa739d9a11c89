"""The agent of a revenue team: a chief revenue officer and two representatives that decide about events.

    cd examples/autonomous_workspace
    worldagent workspace run demo.yaml --app team:agent --events events.jsonl --verified

What members run are the two functions below. The model is scripted, so no key is needed. To ask a real one:

    WORLDAGENT_LM=openai/gpt-4o OPENAI_API_KEY=your-key worldagent workspace run demo.yaml --app team:agent

A second run with the same events does nothing twice.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Otherwise dspy asks the network for a price list at its first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from worldagent import Policy, Rule, Storage, WorldAgent, tool
from worldagent.harness import ToolContext
from worldagent.members import SEND_RULES, load_workspace
from worldagent.testing import ScriptedCall, ScriptedLM

HERE = Path(__file__).parent
HOME = Path(os.environ.get("TEAM_HOME", HERE / ".home"))


def note(line: str) -> str:
    """Write a line to the file that stands for the systems of the company."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "crm.txt").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return line


@tool(risk="write")
async def qualify_lead(ctx: ToolContext, company: str, seats: int) -> str:
    """Say whether a lead is worth a call, and write it to the CRM."""
    return note(f"{ctx.on_behalf_of}: {company} is {'worth a call' if seats >= 10 else 'too small'}")


@tool(risk="destructive")
async def offer_discount(ctx: ToolContext, company: str, percent: int) -> str:
    """Send an offer with a discount. It cannot be taken back."""
    return note(f"{ctx.on_behalf_of}: {company} gets {percent} %")


def scripted(call: ScriptedCall) -> dict[str, Any]:
    """What members say to a message: they take note of it."""
    return {"result": "Noted."} if "task" in call.fields else {"reply": "Noted."}


def agent() -> WorldAgent:
    """The agent, with the members of demo.yaml."""
    return WorldAgent(
        "vibe-team",
        lm=os.environ.get("WORLDAGENT_LM") or ScriptedLM(scripted),
        society=load_workspace(HERE / "demo.yaml"),
        tools=[qualify_lead, offer_discount],
        policy=Policy(rules=(*SEND_RULES, Rule(decision="approve", function="qualify_lead"))),
        storage=Storage(home=HOME),
    )
