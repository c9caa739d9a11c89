"""Who may resume, answer and cancel whose turn through the sidecar, and what the others are advised to do (T4)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from support.role_hosts import Mode
from support.sidecar_served import CANCEL, MODES, Said, Shop, accept, call, task
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.core import Scope
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T4")

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
    """People over one home, each at a sidecar of their own with a grant of their own.

    Attributes:
        sidecar: The one that was opened last.
    """

    sidecar: Sidecar

    def __init__(self, home: Path, *approvers: str) -> None:
        self.shop, self.home, self._approvers = Shop(), home, approvers
        self.place = {"thread": "t1"}

    def agent(self, **more: Any) -> WorldAgent:
        return self.shop.agent(self.home, approvers=self._approvers, **more)

    @asynccontextmanager
    async def of(self, who: str, said: Said | None = None, mode: Mode = "auto") -> AsyncGenerator[Client]:
        """A client with somebody's grant."""
        async with (
            Sidecar(lambda workspace: self.agent(), grant=GRANTS[who]) as self.sidecar,
            Client(self.sidecar.server, mode=mode, elicitation_callback=said) as client,
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
            return await call(client, tool, **self.place, **given)

    async def refused(self, who: str, tool: str, **given: Any) -> dict[str, Any]:
        """The error that a tool gives to somebody."""
        error: dict[str, Any] = (await self.call(who, tool, **given))["error"]
        return error


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def code_of(answer: dict[str, Any]) -> str | None:
    error = answer.get("error")
    return None if error is None else str(error["code"])


@pytest.mark.parametrize("who", ["bob", "reader"])
async def test_a_turn_belongs_to_the_account_that_began_it(who: str, at: Desk) -> None:
    pause, _ = await at.begin("ana")
    assert code_of(await at.call(who, "resume")) == "forbidden"
    assert code_of(await at.call(who, "resume", answers={pause: {"reject": {}}})) == "forbidden"
    assert code_of(await at.call(who, "cancel")) == "forbidden"
    assert at.shop.done == []
    assert (await at.call("ana", "resume", answers={pause: {"approve": {}}}))["turn"]["status"] == "done"


async def test_the_remedy_names_the_account_to_those_who_can_speak_for_it(at: Desk) -> None:
    pause, _ = await at.begin("ana")
    answers: dict[str, Any] = {pause: {"approve": {}}}
    for who, account in (("two", "bob"), ("any", None)):
        speaks = {} if account is None else {"account": account}
        for name, given in (("resume", {}), ("resume", {"answers": answers}), ("cancel", {})):
            error = await at.refused(who, name, **speaks, **given)
            assert (error["code"], error["problem"]) == ("forbidden", "the turn belongs to another account")
            assert error["remedy"] == "call as the account that began it; the token can speak for that account"
    error = await at.refused("bob", "cancel")
    assert (error["problem"], error["remedy"]) == (
        "the token does not reach this turn",
        "name another one, or use a token that reaches it",
    )
    assert (await at.call("two", "cancel", account="ana"))["cancelled"] is True


@pytest.mark.parametrize("account", ["bob", None])
async def test_an_operator_resumes_and_cancels_any_turn(account: str | None, at: Desk) -> None:
    pause, _ = await at.begin("ana")
    speaks = {} if account is None else {"account": account}
    done = await at.call("operator", "resume", answers={pause: {"approve": {}}}, **speaks)
    assert done["turn"]["status"] == "done"
    await at.begin("ana", "say")
    assert (await at.call("operator", "cancel", **speaks))["cancelled"] is True


@pytest.mark.parametrize("who", ["bob", "reader"])
async def test_a_turn_without_an_account_belongs_to_every_caller_of_the_workspace(who: str, at: Desk) -> None:
    pause, _ = await at.begin("reader")
    assert (await at.call(who, "resume", answers={pause: {"approve": {}}}))["turn"]["status"] == "done"


@pytest.mark.requirement("H9")
async def test_one_answer_that_is_not_the_callers_forbids_all(tmp_path: Path) -> None:
    at = Desk(tmp_path, "lead")
    _, turn = await at.begin("ana", "side")
    ids = {each["kind"]: each["id"] for each in turn["pauses"]}
    both = {ids["approval"]: {"approve": {}}, ids["question"]: {"answer": "red"}}
    assert code_of(await at.call("lead", "resume", answers=both)) == "forbidden"
    assert code_of(await at.call("lead", "resume", answers={ids["question"]: {"answer": "red"}})) == "forbidden"
    unknown: dict[str, Any] = {ids["approval"]: {"approve": {}}, "turn_0/none": {"approve": {}}}
    assert code_of(await at.call("lead", "resume", answers=unknown)) == "forbidden"
    approval: dict[str, Any] = {ids["approval"]: {"approve": {}}}
    changes: list[dict[str, Any]] = [{"role": {"content": "Be rude."}}, {"role": None}]
    changes += [{"on_role_change": "refresh"}, {"skill": {"prompt": "Hurry."}}]
    for change in changes:
        assert code_of(await at.call("lead", "resume", answers=approval, **change)) == "forbidden"
    assert code_of(await at.call("lead", "cancel")) == "forbidden"
    assert code_of(await at.call("ana", "resume", answers=approval)) == "not_an_approver"
    assert at.shop.done == []
    again = await at.call("lead", "resume", answers=approval)
    assert ([each["kind"] for each in again["turn"]["pauses"]], at.shop.done) == (["question"], ["hat"])


@pytest.mark.requirement("H9")
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_is_not_asked_for_the_answers_of_others(mode: Mode, tmp_path: Path) -> None:
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


async def test_the_role_of_a_thread_is_not_changed_under_an_open_turn_of_another_account(at: Desk) -> None:
    pause, _ = await at.begin("ana")
    role = {"content": "Be brief, and speak of the tide alone."}
    assert code_of(await at.call("bob", "thread_role_set", role=role)) == "forbidden"
    assert code_of(await at.call("bob", "thread_role_clear")) == "forbidden"
    for allowed in ("ana", "operator"):
        assert (await at.call(allowed, "thread_role_set", role=role))["set"] is True
        assert code_of(await at.call(allowed, "thread_role_clear")) is None
    await at.call("ana", "resume", answers={pause: {"approve": {}}})
    assert (await at.call("bob", "thread_role_set", role=role))["set"] is True  # no turn is open any more


async def test_a_name_says_how_a_person_is_called_and_gives_no_right(at: Desk) -> None:
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


# --- advice -----------------------------------------------------------------------------------------------------------


ROLE = {"content": "Be brief, and speak of the tide."}


class Channel(Desk):
    """A desk in a channel whose role can be away. The agent buys what it is asked to if the lead approves."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, "lead")
        self.place["channel"] = "c"
        self.away = False
        self.role: Role | None = None
        self.held = asyncio.Event()

    def agent(self, **more: Any) -> WorldAgent:
        return super().agent(lm=ScriptedLM(self._reply), roles=Roles(sources={Tier.CHANNEL: self._source}))

    async def _source(self, scope: Scope) -> Role | None:
        if self.away:
            raise OSError("the channel's roles are away")
        return self.role

    async def _reply(self, call: ScriptedCall) -> dict[str, Any]:
        if "hold" in call.fields["message"]:
            self.held.set()
            await asyncio.Event().wait()
        if "buy" in call.fields["message"] and not call.steps:
            return {"reply": "", "calls": [{"tool": "buy", "arguments": {"what": "hat"}}]}
        return {"reply": "Fine.", "calls": []}

    async def buying(self, **more: Any) -> str:
        """Ana's turn waits for the lead; gives its pause."""
        [pause] = (await self.call("ana", "converse", text="buy a hat", **more))["turn"]["pauses"]
        return str(pause["id"])


def tools_of(steps: list[dict[str, Any]]) -> list[str]:
    return [step["tool"] for step in steps]


# --- answers that were kept -------------------------------------------------------------------------------------------


async def test_an_approver_learns_that_the_answer_is_kept_and_who_brings_the_role(tmp_path: Path) -> None:
    at = Channel(tmp_path)
    pause = await at.buying(role=ROLE)
    error = await at.refused("lead", "resume", answers={pause: {"approve": {}}})
    assert (error["code"], error["retryable"]) == ("role_required", False)
    assert "your answers are kept" in error["problem"]
    assert "'ana'" in error["remedy"]
    assert not any(word in error["remedy"] for word in ("the role again", "role=", "on_role_change"))
    assert tools_of(error["next"]) == ["pauses"]
    [step] = error["next"]
    found = await at.call("lead", "pauses")
    assert step["arguments"] == {"workspace": "novel", "account": "lead", "channel": "c", "thread": "t1"}
    assert (found["status"], found["next"]) == ("paused", []), "nothing of it is the lead's"
    assert [(item["id"], item["answered"]) for item in found["pauses"]] == [(pause, True)]
    assert at.shop.done == []

    [step] = (await at.call("ana", "pauses"))["next"]
    assert (step["tool"], step["why"]) == (
        "resume",
        "it is answered; resume continues it; add the role that the turn began with",
    )
    assert ((await at.call("ana", "resume", role=ROLE))["turn"]["status"], at.shop.done) == ("done", ["hat"])


@pytest.mark.parametrize("away", [True, False])
async def test_an_approver_is_not_asked_for_a_role_that_changed_or_is_away(tmp_path: Path, away: bool) -> None:
    at = Channel(tmp_path)
    pause = await at.buying()
    at.away, at.role = away, Role("other", "Be long, and speak of the land.")
    error = await at.refused("lead", "resume", answers={pause: {"approve": {}}})
    code = "role_source_unavailable" if away else "role_changed"
    assert (error["code"], error["retryable"], tools_of(error["next"])) == (code, False, ["pauses"])
    assert "kept" in error["problem"] + error["remedy"]
    assert "on_role_change" not in error["remedy"]
    at.away, at.role = False, None
    assert (await at.call("ana", "resume"))["turn"]["status"] == "done"
    assert at.shop.done == ["hat"]


async def test_a_running_turn_that_keeps_no_events_is_the_owners_to_wait_for(tmp_path: Path) -> None:
    at = Channel(tmp_path)
    async with at.of("ana") as client:
        held = asyncio.create_task(call(client, "converse", **at.place, text="hold", detach=False))
        await asyncio.wait_for(at.held.wait(), 20)
        of_ana, of_bob = [await at.call(who, "pauses") for who in ("ana", "bob")]
        assert (of_ana["status"], tools_of(of_ana["next"])) == ("running", ["resume"])
        assert (of_bob["status"], of_bob["next"]) == ("running", [])
        assert (await call(client, "cancel", **at.place))["cancelled"] is True
        assert (await asyncio.wait_for(held, 20))["turn"]["status"] == "cancelled"


# --- threads that take nothing new ------------------------------------------------------------------------------------


async def test_new_input_on_a_stopped_turn_is_refused_with_resume_and_cancel(tmp_path: Path) -> None:
    at = Channel(tmp_path)
    async with at.of("ana") as client:
        held = asyncio.create_task(call(client, "converse", **at.place, text="hold", key="k"))
        await asyncio.wait_for(at.held.wait(), 20)
        await at.sidecar.drain(0.1)
        stopped = (await asyncio.wait_for(held, 20))["turn"]
    assert stopped["status"] == "stopped"
    error = await at.refused("ana", "converse", text="And?")
    assert (error["code"], error["turn_id"], error["pauses"]) == ("thread_paused", stopped["id"], [])
    assert "is stopped" in error["problem"]
    assert "answer" not in error["remedy"]
    assert tools_of(error["next"]) == ["resume", "cancel"]
    assert [set(step["arguments"]) for step in error["next"]] == [{"workspace", "account", "channel", "thread"}] * 2
    assert "step" in error["next"][0]["why"]
    other = await at.refused("bob", "converse", text="And?")
    assert "'ana'" in other["remedy"]
    assert tools_of(other["next"]) == ["pauses"]
    assert (await at.refused("bob", "resume"))["code"] == "forbidden"


async def test_new_input_on_a_paused_turn_is_refused_with_who_answers(tmp_path: Path) -> None:
    at = Channel(tmp_path)
    pause = await at.buying(role=ROLE)
    for who, tools, word in (
        ("ana", ["resume", "cancel"], "with an answer to each pause"),
        ("lead", ["resume"], "with an answer to each pause that names you"),
        ("bob", ["pauses"], "wait until the turn's account 'ana' resumes the turn"),
    ):
        error = await at.refused(who, "converse", text="And?")
        assert (error["code"], tools_of(error["next"]), [each["id"] for each in error["pauses"]]) == (
            "thread_paused",
            tools,
            [pause],
        )
        assert word in error["remedy"]
    await at.refused("lead", "resume", answers={pause: {"approve": {}}})
    answered = await at.refused("ana", "converse", text="And?")
    assert (answered["pauses"], "to continue the turn" in answered["remedy"]) == ([], True)
    assert answered["next"][0]["why"] == "it is answered; resume continues it; add the role that the turn began with"
