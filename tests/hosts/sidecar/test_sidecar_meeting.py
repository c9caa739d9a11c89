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

from support.canaries import canary
from support.serve_command import MAKE, serving
from support.sidecar_calls import Refused, Revision
from support.sidecar_clients import HttpClient
from support.sidecars import REVISIONS
from worldagent.testing import scan_for_roles

pytestmark = pytest.mark.requirement("T4", "T10")
revisions = pytest.mark.parametrize("revision", REVISIONS)
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
async def meeting(folder: Path, revision: Revision) -> AsyncGenerator[tuple[Person, Person, Person]]:
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
        clients = [HttpClient(sidecar.url, f"token-of-{name}", revision) for name in THREADS]
        for client in clients:
            await opened.enter_async_context(client)
        yield Person(clients[0]), Person(clients[1]), Person(clients[2])


async def begun(ana: Person, thread: str = "shared") -> dict[str, str]:
    """Begin a turn that waits for leave and for an answer; gives the pauses' ids by their kinds."""
    turn = (await ana("task", thread, shape="both", name="Ana B."))["turn"]
    assert turn["status"] == "paused"
    return {pause["kind"]: pause["id"] for pause in turn["pauses"]}


@revisions
async def test_who_has_another_token_neither_goes_on_with_a_turn_nor_ends_it(
    tmp_path: Path, revision: Revision
) -> None:
    async with meeting(tmp_path, revision) as (ana, bob, _):
        ids = await begun(ana)
        answers: tuple[dict[str, Any], ...] = (
            {ids["approval"]: {"approve": {}}},
            {ids["approval"]: {"reject": {}}},
            {ids["question"]: {"answer": "red"}},
        )
        tries: list[dict[str, Any]] = [{"answers": each} for each in answers]
        tries += [{}, {"role": OTHER}, {"role": None}]
        for given in tries:
            assert (await bob.refused("resume", **given))["code"] == "forbidden"
            spoken_for = await bob.refused("resume", account="ana", **given)
            assert (spoken_for["code"], spoken_for["problem"]) == ("forbidden", "the token does not reach this account")
        assert (await bob.refused("cancel"))["code"] == "forbidden"
        assert (await bob.refused("cancel", account="ana"))["code"] == "forbidden"
        assert (await bob.refused("thread_role_set", role=OTHER))["code"] == "forbidden"
        waits = await ana("pauses")
        assert [pause["id"] for pause in waits["pauses"]] == sorted(ids.values())
        assert waits["next"]
        assert await bob("pauses") == waits | {"next": []}  # whose threads reach it reads it, and is told to do nothing


@revisions
async def test_of_a_thread_that_a_token_does_not_reach_it_learns_nothing(tmp_path: Path, revision: Revision) -> None:
    async with meeting(tmp_path, revision) as (ana, bob, lead):
        ids = await begun(ana, "ana-1")
        answers: dict[str, Any] = {ids["approval"]: {"approve": {}}}
        calls: tuple[tuple[str, dict[str, Any]], ...] = (
            ("pauses", {}),
            ("history", {}),
            ("resume", {}),
            ("resume", {"answers": answers}),
            ("cancel", {}),
        )
        for tool, given in calls:
            error = await bob.refused(tool, "ana-1", **given)
            assert error["code"] == "forbidden"
            assert error == await bob.refused(tool, "ana-none", **given)
        assert (await bob.client.ask("threads"))["threads"] == []
        assert (await lead("resume", "ana-1", answers=answers))["turn"]["status"] == "paused"  # one is left, ana's


@revisions
async def test_an_approver_answers_and_nothing_else_and_who_began_it_ends_it(
    tmp_path: Path, revision: Revision
) -> None:
    async with meeting(tmp_path, revision) as (ana, bob, lead):
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


@revisions
async def test_an_approver_of_a_turn_with_a_role_leaves_it_to_who_began_it(tmp_path: Path, revision: Revision) -> None:
    async with meeting(tmp_path, revision) as (ana, bob, lead):
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
