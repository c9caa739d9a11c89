"""`next` in an answer: the call that it describes works once the caller has added what `needs` names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.sidecar_calls import Calling
from support.sidecars import over_http

ROLE = {"content": "Be brief, and speak of the tide."}
SKILL = {"prompt": "Buy what is asked for.", "shape": "buy", "params": {"what": "hat"}}
# Of `buy`, whose code asks no model, a role reaches nothing; so none is needed again.
AGAIN = {"role": ROLE, "skill": SKILL}
STARTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "plain": ("converse", {"text": "do=buy what=hat"}, ["answers"]),
    "role": ("converse", {"text": "do=buy what=hat", "role": ROLE}, ["answers", "role"]),
    "task": ("task", {"shape": "buy", "role": ROLE}, ["answers"]),
    "skill": ("run_skill", {"skill": SKILL}, ["answers", "skill"]),
    "skill and role": ("run_skill", {"skill": SKILL, "role": ROLE}, ["answers", "skill"]),
}


async def done_as_told(client: Calling, next_step: Mapping[str, Any], pause: str) -> dict[str, Any]:
    """Make the call that `next` describes, with exactly what it says that it needs."""
    given = dict(next_step["arguments"])
    for name in next_step["needs"]:
        given[name] = {pause: {"approve": {}}} if name == "answers" else AGAIN[name]
    return await client.ask(next_step["tool"], **given)


@pytest.mark.requirement("T4")
async def test_next_of_a_paused_turn_works_with_what_it_needs(tmp_path: Path) -> None:
    async with over_http(tmp_path / "home") as sidecar, sidecar.client() as client:
        for thread, (tool, arguments, needs) in STARTS.items():
            async with client.call(tool, {"thread": thread, "account": "ana", **arguments}) as call:
                paused = await call.answer()
            assert call.result is not None
            [block] = call.result["content"]
            assert json.loads(block["text"]) == paused  # a client that shows text alone can answer, too
            [pause] = paused["turn"]["pauses"]
            [step] = paused["next"]
            assert sorted(step["needs"]) == needs
            assert [name for name in needs[1:] if name not in step["why"]] == []
            listed = await client.ask("pauses", thread=thread, account="ana")
            assert listed["next"] == [step]
            done = await done_as_told(client, listed["next"][0], pause["id"])
            assert (done["turn"]["status"], done["next"]) == ("done", [])
        assert ROLE["content"] not in str(client.heard)
