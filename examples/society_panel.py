"""A panel votes: one question to three members, with the votes gathered in one pause, and a quorum of two.

    python examples/society_panel.py

An editor asks its panel whether a story may be printed. Two votes are enough, so the editor decides without the third,
which comes later as an ordinary message. The models are scripted, so no key is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

# Otherwise dspy asks the network for a price list at its first call.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

from worldagent import Policy, Storage, WorldAgent
from worldagent.members import SEND_RULES, AuthorityConfig, Gateway, RoleSpec, WorkspaceConfig
from worldagent.testing import ScriptedCall, ScriptedLM

VOTES = {"facts": "yes, all names are right", "law": "no, the photograph is not ours", "style": ""}
QUESTION = "May we print the story about the harbour? Answer yes or no, and why."


def spec(role_id: str, parent: str, soul: str, *domains: str) -> RoleSpec:
    given: dict[str, Any] = {"role_id": role_id, "parent_role_id": parent, "reports_to": parent, "soul": soul}
    return RoleSpec(workspace="paper", domains=domains, operator_ids=(), authority=AuthorityConfig(), **given)


def votes_in(step: str) -> dict[str, str]:
    """The last line of each answer that `ask_group` returned."""
    found = json.JSONDecoder().raw_decode(step[step.rindex('{"answers"') :])[0]
    return {member: text.splitlines()[-1] for member, text in found["answers"].items()}


def scripted(call: ScriptedCall) -> dict[str, Any]:
    """What the models say: a member of the panel votes, and the editor asks and counts."""

    def calls(tool: str, **arguments: Any) -> dict[str, Any]:
        return {"result": "", "calls": [{"tool": tool, "arguments": arguments}]}

    voter = next((each for each in VOTES if f"You check the {each}." in call.text), None)
    if "task" not in call.fields:  # the World Agent
        return {"reply": "Good."}
    if len(call.steps) == (2 if voter is None else 1) or (
        voter is None and "ready?" not in str(call.fields["message"])
    ):
        return {"result": "Done."}
    if voter is not None:
        return calls("send_message", to="editor", content=VOTES[voter]) if VOTES[voter] else {"result": "Later."}
    if not call.steps:
        return calls("ask_group", domain="panel", request=QUESTION, quorum=2, deadline=3600)
    votes = votes_in(call.steps[0])
    yes = sum(vote.startswith("yes") for vote in votes.values())
    return calls("send_message", to="root", content=f"{yes} of {len(votes)} votes for printing: {votes}")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="worldagent-") as home:
        given: dict[str, Any] = {"lm": ScriptedLM(scripted), "policy": Policy(rules=SEND_RULES)}
        config = WorkspaceConfig(id="paper", owner="charles")
        async with WorldAgent("paper", society=config, storage=Storage(home=Path(home)), **given) as agent:
            await agent.society.join(spec("editor", "", "You decide what is printed."))
            for each in VOTES:
                await agent.society.join(spec(each, "editor", f"You check the {each}.", "panel"))
            for sender, text in (("root", "Is the story about the harbour ready?"), ("style", "yes, but shorter")):
                await agent.society.mail.send(sender, "editor", text)
                while await Gateway(agent).deliver():
                    pass
            for letter in await agent.society.mail.of("editor"):
                print(f"{letter.message.from_id} -> {letter.message.to_id}: {letter.message.content}")


if __name__ == "__main__":
    asyncio.run(main())
