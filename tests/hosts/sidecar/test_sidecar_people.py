"""Who may resume, answer and cancel whose turn through the sidecar, and how people are called (T4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from support.role_hosts import Mode
from support.sidecar_served import CANCEL, MODES, Said, Shop, accept, call, task
from worldagent.hosts.sidecar import Grant, Sidecar

GRANTS = {
    "ana": Grant({"novel"}, {"ana"}),
    "bob": Grant({"novel"}, {"bob"}),
    "lead": Grant({"novel"}, {"lead"}),
    "reader": Grant({"novel"}),
    "two": Grant({"novel"}, {"ana", "bob"}),
    "any": Grant({"novel"}, {"*"}),
    "operator": Grant({"novel"}, {"*"}, operator=True),
}


class Desk:
    """Clients of one sidecar, each with a grant of its own."""

    def __init__(self, home: Path, *approvers: str) -> None:
        self.shop, self._home, self._approvers = Shop(), home, approvers

    @asynccontextmanager
    async def of(self, who: str, said: Said | None = None, mode: Mode = "auto") -> AsyncGenerator[Client]:
        """A client that speaks for somebody, over the home that all of them share."""
        async with (
            Sidecar(
                lambda workspace: self.shop.agent(self._home, approvers=self._approvers), grant=GRANTS[who]
            ) as sidecar,
            Client(sidecar.server, mode=mode, elicitation_callback=said) as client,
        ):
            yield client

    async def begin(self, who: str, shape: str = "buy", **more: Any) -> tuple[str, dict[str, Any]]:
        """A turn of somebody's that waits: its pause's id, and all of it."""
        async with self.of(who) as client:
            turn = (await task(client, shape, **more))["turn"]
            assert turn["status"] == "paused"
            return turn["pauses"][0]["id"], turn

    async def call(self, who: str, tool: str, **given: Any) -> dict[str, Any]:
        """What a tool gives to somebody."""
        async with self.of(who) as client:
            return await call(client, tool, thread="t1", **given)


def code_of(answer: dict[str, Any]) -> str | None:
    error = answer.get("error")
    return None if error is None else str(error["code"])


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("who", ["bob", "reader"])
async def test_a_turn_is_of_the_account_that_began_it(who: str, tmp_path: Path) -> None:
    at = Desk(tmp_path)
    pause, _ = await at.begin("ana")
    assert code_of(await at.call(who, "resume")) == "forbidden"
    assert code_of(await at.call(who, "resume", answers={pause: {"reject": {}}})) == "forbidden"
    assert code_of(await at.call(who, "cancel")) == "forbidden"
    assert at.shop.done == []
    done = await at.call("ana", "resume", answers={pause: {"approve": {}}})
    assert done["turn"]["status"] == "done"


@pytest.mark.requirement("T4")
async def test_who_may_speak_for_the_turns_account_is_told_to_and_others_are_not(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    pause, _ = await at.begin("ana")
    answers: dict[str, Any] = {pause: {"approve": {}}}
    for who, account in (("two", "bob"), ("any", None)):
        speaks = {} if account is None else {"account": account}
        for tool, given in (("resume", {}), ("resume", {"answers": answers}), ("cancel", {})):
            error = (await at.call(who, tool, **speaks, **given))["error"]
            assert (error["code"], error["problem"]) == ("forbidden", "the turn belongs to another account")
            assert error["remedy"] == "call as the account that began it; the token can speak for that account"
    error = (await at.call("bob", "cancel"))["error"]
    assert (error["problem"], error["remedy"]) == (
        "the token does not reach this turn",
        "name another one, or use a token that reaches it",
    )
    assert (await at.call("two", "cancel", account="ana"))["cancelled"] is True


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("account", ["bob", None])
async def test_an_operator_may_touch_all_of_them(account: str | None, tmp_path: Path) -> None:
    at = Desk(tmp_path)
    pause, _ = await at.begin("ana")
    speaks = {} if account is None else {"account": account}
    done = await at.call("operator", "resume", answers={pause: {"approve": {}}}, **speaks)
    assert done["turn"]["status"] == "done"
    await at.begin("ana", "say")
    assert (await at.call("operator", "cancel", **speaks))["cancelled"] is True


@pytest.mark.requirement("T4")
@pytest.mark.parametrize("who", ["bob", "reader"])
async def test_a_turn_that_nobodys_account_began_is_of_whoever_reaches_the_workspace(who: str, tmp_path: Path) -> None:
    at = Desk(tmp_path)
    pause, _ = await at.begin("reader")
    done = await at.call(who, "resume", answers={pause: {"approve": {}}})
    assert done["turn"]["status"] == "done"


@pytest.mark.requirement("H9")
async def test_one_answer_that_is_not_theirs_forbids_all_of_them(tmp_path: Path) -> None:
    at = Desk(tmp_path, "lead")
    _, turn = await at.begin("ana", "side")
    ids = {each["kind"]: each["id"] for each in turn["pauses"]}
    both = {ids["approval"]: {"approve": {}}, ids["question"]: {"answer": "red"}}
    assert code_of(await at.call("lead", "resume", answers=both)) == "forbidden"
    assert code_of(await at.call("lead", "resume", answers={ids["question"]: {"answer": "red"}})) == "forbidden"
    unknown: dict[str, Any] = {ids["approval"]: {"approve": {}}, "turn_0/none": {"approve": {}}}
    assert code_of(await at.call("lead", "resume", answers=unknown)) == "forbidden"
    leave: dict[str, Any] = {ids["approval"]: {"approve": {}}}
    changes: list[dict[str, Any]] = [{"role": {"content": "Be rude."}}, {"role": None}]
    changes += [{"on_role_change": "refresh"}, {"skill": {"prompt": "Hurry."}}]
    for change in changes:
        assert code_of(await at.call("lead", "resume", answers=leave, **change)) == "forbidden"
    assert code_of(await at.call("lead", "cancel")) == "forbidden"
    assert code_of(await at.call("ana", "resume", answers=leave)) == "not_an_approver"
    assert at.shop.done == []
    again = await at.call("lead", "resume", answers=leave)
    assert ([each["kind"] for each in again["turn"]["pauses"]], at.shop.done) == (["question"], ["hat"])


@pytest.mark.requirement("H9")
@pytest.mark.parametrize("mode", MODES)
async def test_nobody_is_asked_what_is_not_theirs_to_answer(mode: Mode, tmp_path: Path) -> None:
    at = Desk(tmp_path, "lead")
    said = Said([accept(decision="approve")])
    async with at.of("ana", said, mode) as client:
        found = await task(client, "buy")
    assert (found["turn"]["status"], said.asked) == ("paused", [])
    said = Said([CANCEL])
    _, turn = await at.begin("ana", "side", thread="t2")
    ids = {each["kind"]: each["id"] for each in turn["pauses"]}
    async with at.of("lead", said, mode) as client:  # the question that is left is Ana's
        found = await call(client, "resume", thread="t2", answers={ids["approval"]: {"approve": {}}})
    assert (found["turn"]["status"], said.asked) == ("paused", [])


@pytest.mark.requirement("T4")
async def test_the_role_of_a_thread_is_not_changed_under_an_open_turn_of_another_account(tmp_path: Path) -> None:
    who = "bob"
    at = Desk(tmp_path)
    pause, _ = await at.begin("ana")
    role = {"content": "Be brief, and speak of the tide alone."}
    assert code_of(await at.call(who, "thread_role_set", role=role)) == "forbidden"
    assert code_of(await at.call(who, "thread_role_clear")) == "forbidden"
    for allowed in ("ana", "operator"):
        assert (await at.call(allowed, "thread_role_set", role=role))["set"] is True
        assert code_of(await at.call(allowed, "thread_role_clear")) is None
    await at.call("ana", "resume", answers={pause: {"approve": {}}})
    assert (await at.call(who, "thread_role_set", role=role))["set"] is True  # no turn is open any more


@pytest.mark.requirement("T4")
async def test_a_name_says_how_a_person_is_called_and_gives_no_right(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    pause, _ = await at.begin("ana", name="Ana B.")
    async with at.of("bob") as client:
        taken = await call(client, "converse", thread="t2", text="Hello.", name="ana")
        assert taken["turn"]["status"] == "done"
        history = await call(client, "history", thread="t2")
        assert history["messages"][0]["author"] == "bob"
        assert history["messages"][0]["body"]["name"] == "ana"
        assert code_of(await call(client, "resume", thread="t1", answers={pause: {"approve": {}}})) == "forbidden"
        for name in ("x" * 81, "two\nlines", " "):
            refused = await call(client, "converse", thread="t2", text="Hello.", name=name)
            assert code_of(refused) == "invalid_argument"
            assert name.strip() == "" or name not in str(refused)
    [first, *_] = (await at.call("ana", "history"))["messages"]
    assert (first["kind"], first["author"], first["body"]["name"]) == ("task", "ana", "Ana B.")
