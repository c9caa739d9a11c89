"""People with tokens of their own meet at one paused turn, over HTTP, at a sidecar that `worldagent serve` runs (T4).

Each rule by itself, without a transport, is in `test_sidecar_people`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.command_line import MAKE, serving
from support.leaks import canary
from support.sidecar_calls import Refused
from support.sidecar_clients import HttpClient
from worldagent.testing import scan_for_roles

pytestmark = pytest.mark.requirement("T4", "T10")
ROLE: dict[str, str] = {"content": canary(400, "role of ana"), "name": canary(12, "name of ana")}
OTHER: dict[str, str] = {"content": "Be rude.", "name": "rude"}
THREADS = {"ana": ["*"], "bob": ["shared", "bob-*"], "lead": ["shared", "ana-*"]}
RULES = [{"decision": "ask", "function": "pay", "approvers": ["lead*"], "name": "money"}]


class Person:
    """Somebody with a token of their own, who names no account: the token does."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client

    async def __call__(self, tool: str, thread: str = "shared", **given: Any) -> dict[str, Any]:
        """What a tool answers."""
        return await self.client.ask(tool, thread=thread, **given)

    async def refused(self, tool: str, thread: str = "shared", **given: Any) -> dict[str, Any]:
        """The error that a tool answers with."""
        with pytest.raises(Refused) as caught:
            await self(tool, thread, **given)
        error: dict[str, Any] = caught.value.told["structuredContent"]["error"]
        return error


@asynccontextmanager
async def meeting(folder: Path) -> AsyncGenerator[tuple[Person, Person, Person]]:
    """Run a sidecar where `lead` approves what is paid for; gives clients of ana, bob and lead."""
    home, tokens, policy = folder / "home", folder / "tokens.toml", folder / "policy.json"
    told = (
        f'[[token]]\ntoken = "token-of-{name}"\nworkspaces = ["shop"]\naccounts = ["{name}"]\nthreads = {globs!r}\n'
        for name, globs in THREADS.items()
    )
    tokens.write_text("".join(told), encoding="utf-8")
    tokens.chmod(0o600)
    policy.write_text(json.dumps({"rules": RULES}), encoding="utf-8")
    words = (*MAKE, "--token-file", str(tokens), "--policy", str(policy))
    async with serving(home, *words) as sidecar, AsyncExitStack() as opened:
        clients = [HttpClient(sidecar.url, f"token-of-{name}") for name in THREADS]
        for client in clients:
            await opened.enter_async_context(client)
        yield Person(clients[0]), Person(clients[1]), Person(clients[2])


async def begun(ana: Person, thread: str = "shared") -> dict[str, str]:
    """Begin a turn that waits for leave and for an answer; gives the pauses' ids by their kinds."""
    turn = (await ana("task", thread, shape="both", name="Ana B."))["turn"]
    assert turn["status"] == "paused"
    return {pause["kind"]: pause["id"] for pause in turn["pauses"]}


async def test_an_approver_answers_and_nothing_else_and_who_began_it_ends_it(tmp_path: Path) -> None:
    async with meeting(tmp_path) as (ana, bob, lead):
        ids = await begun(ana)
        leave: dict[str, Any] = {ids["approval"]: {"approve": {}}}
        colour: dict[str, Any] = {ids["question"]: {"answer": "red"}}
        assert (await ana.refused("resume", answers=leave))["code"] == "not_an_approver"
        [step] = (await lead("pauses"))["next"]
        assert step["tool"] == "resume"
        assert ids["approval"] in step["why"]
        assert ids["question"] not in step["why"]
        changes: tuple[dict[str, Any], ...] = (
            {"role": OTHER},
            {"role": None},
            {"on_role_change": "refresh"},
            {"skill": {"prompt": "Hurry."}},
        )
        for change in changes:
            assert (await lead.refused("resume", answers=leave, **change))["code"] == "forbidden"
        more: tuple[dict[str, Any], ...] = ({}, {"answers": colour}, {"answers": leave | colour})
        for given in more:
            assert (await lead.refused("resume", **given))["code"] == "forbidden"
        assert (await lead.refused("cancel"))["code"] == "forbidden"
        assert not (tmp_path / "home" / "bought").exists()
        left = await lead("resume", answers=leave)
        assert [pause["id"] for pause in left["turn"]["pauses"]] == [ids["question"]]
        assert left["next"] == []
        assert (await bob.refused("resume", answers=colour))["code"] == "forbidden"
        done = (await ana("resume", answers=colour))["turn"]
        assert (done["status"], done["pauses"]) == ("done", [])
        assert (tmp_path / "home" / "bought").read_text().split() == ["hat"]
        for who in (ana, bob, lead):
            messages = (await who("history"))["messages"]
            named = [(each["kind"], each["author"]) for each in messages if each["body"].get("name") == "Ana B."]
            assert named == [("task", "ana")]


async def test_an_approver_of_a_turn_with_a_role_leaves_it_to_who_began_it(tmp_path: Path) -> None:
    async with meeting(tmp_path) as (ana, bob, lead):
        [pause] = (await ana("converse", text="do=buy", role=ROLE))["turn"]["pauses"]
        leave: dict[str, Any] = {pause["id"]: {"approve": {}}}
        assert (await lead.refused("resume", answers=leave, role=OTHER))["code"] == "forbidden"
        kept = await lead.refused("resume", answers=leave)
        assert kept["code"] == "role_required"
        assert kept["problem"].startswith("your answers are kept")
        assert "'ana'" in kept["remedy"]
        assert [step["tool"] for step in kept["next"]] == ["pauses"]  # which reads, and goes on with nothing
        assert (await lead.refused("resume", answers=leave))["code"] == "forbidden"  # it counts once
        assert (await bob.refused("resume", role=ROLE))["code"] == "forbidden"
        assert (await ana.refused("resume"))["code"] == "role_required"
        assert (await ana("resume", role=ROLE))["turn"]["status"] == "done"
        assert (tmp_path / "home" / "bought").read_text().split() == ["hat"]
        for who in (bob, lead):
            await who("pauses")
            await who("history")
        found = scan_for_roles([each.client.heard for each in (ana, bob, lead)], list(ROLE.values())).findings
        assert not found, "\n".join(["a role stands in", *map(str, found)])
