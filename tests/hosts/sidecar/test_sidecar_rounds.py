"""Rounds of the revision 2026-07-28: a call that asks ends, and the client calls again with what a person said (T4)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import InputRequiredResult

from support.sidecar_served import CANCEL, Said, Shop, accept, asked, call, task
from worldagent import Role, Roles, Tier, WorldAgent
from worldagent.core import Scope
from worldagent.hosts.sidecar import EVERYTHING, Grant, Sidecar
from worldagent.hosts.sidecar.asking import Round, call_digest

pytestmark = pytest.mark.requirement("T4")

LIMIT = 20
SECRET = "vermilion-otter"


async def turn_of(client: Client) -> str:
    """The newest turn of the thread."""
    [state] = (await call(client, "threads"))["threads"]
    return str(state["turn_id"])


async def paused_round(client: Client, **arguments: Any) -> tuple[dict[str, Any], InputRequiredResult]:
    """A call that is answered with questions, and what it was."""
    given = {"workspace": "novel", "thread": "t1", "shape": "buy", "params": {"what": "hat"}, **arguments}
    found = await client.session.call_tool("task", given, allow_input_required=True)
    assert isinstance(found, InputRequiredResult)
    return given, found


def approved(found: InputRequiredResult) -> dict[str, Any]:
    """A yes to all that is asked."""
    return dict.fromkeys(found.input_requests or {}, accept(decision="approve"))


async def again(client: Client, given: dict[str, Any], state: str | None, responses: Any, progress: Any = None) -> Any:
    """The same call again, with what a person said."""
    return await client.session.call_tool(
        "task",
        given,
        request_state=state,
        input_responses=responses,
        allow_input_required=True,
        progress_callback=progress,
        meta=None if progress is None else {"progress_token": 1},
    )


class Held:
    """A shop whose turn waits where an answer is taken and it is about to continue."""

    def __init__(self, home: Path) -> None:
        self.shop, self.goes_on, self.may = Shop(), asyncio.Event(), asyncio.Event()
        self._home = home
        self._looks = 0

    def agent(self, workspace: str) -> WorldAgent:
        roles = Roles(sources={Tier.CHANNEL: self._role})
        return self.shop.agent(self._home, roles=roles, settings={"role_timeout": LIMIT})

    async def _role(self, scope: Scope) -> Role | None:
        self._looks += 1
        if self._looks == 3:  # after those of its start and of the check before the first answer is taken
            self.goes_on.set()
            await self.may.wait()
        return None


async def test_a_round_continues_in_another_process(tmp_path: Path) -> None:
    async with asked(tmp_path, "auto", accept(decision="approve")) as (client, _):
        given, found = await paused_round(client)
    async with asked(tmp_path, "auto", accept(decision="approve")) as (client, said):
        answers = approved(found)
        done = await again(client, given, found.request_state, answers)
        assert done.structured_content["turn"]["result"] == {"text": "paid for the hat"}
        assert said.asked == []
        late = await again(client, given, found.request_state, answers)
        turn = late.structured_content["turn"]
        assert (turn["id"], turn["status"], turn["text"]) == (done.structured_content["turn"]["id"], "done", None)
        assert [step["tool"] for step in late.structured_content["next"]] == ["history"]
    assert said.shop.done == ["hat"]


@pytest.mark.requirement("T10")
async def test_a_round_that_is_repeated_with_its_key_gives_the_turns_answer(tmp_path: Path) -> None:
    async with asked(tmp_path, "auto", accept(decision="approve")) as (client, said):
        given, found = await paused_round(client, key="k1", detach=True)
        answers = approved(found)
        first = await again(client, given, found.request_state, answers)
        for repeated in (answers, {}):
            second = await again(client, given, found.request_state, repeated)
            assert second.structured_content == first.structured_content
    assert first.structured_content["turn"]["result"] == {"text": "paid for the hat"}
    assert said.shop.done == ["hat"]


@pytest.mark.requirement("T10")
@pytest.mark.parametrize("follows", [True, False])
async def test_concurrent_answers_to_two_questions_both_get_the_turns_answer(follows: bool, tmp_path: Path) -> None:
    held = Held(tmp_path)
    seen: list[float] = []

    async def progress(seq: float, total: float | None, message: str | None) -> None:
        seen.append(seq)

    place = {"thread": "t1", "channel": "#shop"}
    async with (
        Sidecar(held.agent) as sidecar,
        Client(sidecar.server, elicitation_callback=Said([CANCEL])) as one,
        Client(sidecar.server, elicitation_callback=Said([CANCEL])) as other,
        asyncio.timeout(LIMIT),
    ):
        given, found = await paused_round(one, shape="side", key="k1", detach=True, after=0, **place)
        said = {"question": accept(answer="red"), "approval": accept(decision="approve")}
        asked = {pause["kind"]: pause["id"] for pause in (await call(one, "pauses", **place))["pauses"]}
        halves = [{asked[kind]: answer} for kind, answer in said.items()]
        first = asyncio.create_task(again(one, given, found.request_state, halves[0]))
        await held.goes_on.wait()
        first_run = await call(one, "events", turn_id=(await call(one, "pauses", **place))["turn_id"])
        second = asyncio.create_task(again(other, given, found.request_state, halves[1], progress if follows else None))
        while not all(pause["answered"] for pause in (await call(one, "pauses", **place))["pauses"]):
            pass  # that the second answer is taken is seen by nothing else
        held.may.set()
        told, repeated = [each.structured_content for each in await asyncio.gather(first, second)]
    assert told["turn"]["result"] == {"text": "red: paid for the hat"}
    assert repeated == told
    assert seen == (list(range(first_run["seq"] + 1, told["seq"] + 1)) if follows else [])
    assert held.shop.done == ["hat"]


@pytest.mark.requirement("T10")
@pytest.mark.parametrize("after", [{}, {"after": 1}], ids=["", "after"])
@pytest.mark.parametrize("start", [{}, {"detach": False}], ids=["detached", "not detached"])
async def test_second_round_sends_others_events(start: dict[str, Any], after: dict[str, Any], tmp_path: Path) -> None:
    seen: list[float] = []
    recorded = start.get("detach", True)

    async def progress(seq: float, total: float | None, message: str | None) -> None:
        seen.append(seq)

    async with asked(tmp_path, "auto", accept(decision="approve")) as (client, _):
        given, found = await paused_round(client, shape="side", **start, **after)
        waits = await call(client, "pauses", thread="t1")
        pauses = {pause["kind"]: pause["id"] for pause in waits["pauses"]}
        first = (await call(client, "events", turn_id=waits["turn_id"]))["seq"] if recorded else 0
        answers = {pauses["question"]: {"answer": "red"}}
        between = await call(client, "resume", thread="t1", answers=answers, detach=True, pauses="return")
        assert between["turn"]["status"] == "paused"
        said = {pauses["approval"]: accept(decision="approve")}
        done = (await again(client, given, found.request_state, said, progress)).structured_content
        log = await call(client, "events", turn_id=waits["turn_id"])
    assert (done["turn"]["status"], done["seq"]) == ("done", log["seq"])
    if not recorded:  # the log begins with what went on in between, and only who says `after` knows of it
        first = after.get("after", between["seq"])
    assert seen == list(range(first + 1, done["seq"] + 1))


@pytest.mark.parametrize(
    "state",
    ["", "wa1.!!!", "wa1.e30=", "wa1." + "A" * 100_000, SECRET],
    ids=lambda state: str(len(state)) + state[:4],
)
async def test_an_invalid_state_is_refused(state: str, tmp_path: Path) -> None:
    async with asked(tmp_path, "auto", accept(decision="approve")) as (client, said):
        given, found = await paused_round(client)
        refused = await again(client, given, state, approved(found))
        assert refused.structured_content["error"]["code"] == "invalid_argument"
        assert SECRET not in json.dumps(refused.structured_content)
    assert said.shop.done == []


@pytest.mark.parametrize("other", [{"params": {"what": "cap"}}, {"account": "bob"}])
async def test_a_state_belongs_to_one_call(other: dict[str, Any], tmp_path: Path) -> None:
    async with asked(tmp_path, "auto", accept(decision="approve")) as (client, said):
        given, found = await paused_round(client)
        for call_of, state in ((given | other, found.request_state), (given, None)):
            refused = await again(client, call_of, state, approved(found))
            assert refused.structured_content["error"]["code"] == "invalid_argument"
    assert said.shop.done == []


async def test_a_forged_state_reaches_no_turn_of_another_account(tmp_path: Path) -> None:
    shop = Shop()
    grant = Grant({"novel"}, {"bob"})
    async with Sidecar(lambda workspace: shop.agent(tmp_path)) as sidecar:
        async with Client(sidecar.server) as ana:
            [pause] = (await task(ana, "buy", account="ana"))["turn"]["pauses"]
            turn = await turn_of(ana)
        sidecar._grant = grant
        async with Client(sidecar.server, elicitation_callback=Said([CANCEL])) as bob:
            given = {"workspace": "novel", "account": "bob", "thread": "t1", "shape": "buy", "params": {"what": "hat"}}
            forged = Round(turn=turn, thread="t1", call=call_digest("task", given)).text()
            refused = await again(bob, given, forged, {pause["id"]: accept(decision="approve")})
            assert refused.structured_content["error"]["code"] in ("forbidden", "already_answered")
            other = Round(turn="turn_0", thread="t1", call=call_digest("task", given)).text()
            refused = await again(bob, given, other, {pause["id"]: accept(decision="approve")})
            assert "error" in refused.structured_content
            assert shop.done == []
            sidecar._grant = EVERYTHING
            answers: dict[str, Any] = {pause["id"]: {"approve": {}}}
            await call(bob, "resume", workspace="novel", thread="t1", account="ana", answers=answers)
            sidecar._grant = grant
            late = await again(bob, given, forged, {pause["id"]: accept(decision="approve")})
            assert late.structured_content["error"]["code"] == "already_answered"


async def test_invalid_responses_are_asked_again_and_then_given_up(tmp_path: Path) -> None:
    async with asked(tmp_path, "auto", CANCEL) as (client, _):
        given, found = await paused_round(client)
        [pause] = found.input_requests or {}
        wrong: tuple[dict[str, Any], ...] = ({}, {pause: {"roots": []}}, {pause: accept(decision="perhaps")})
        last: Any = found
        for responses in wrong:
            assert isinstance(last, InputRequiredResult)
            last = await again(client, given, last.request_state, responses)
        assert last.structured_content["turn"]["status"] == "paused"
        state = Round(turn=await turn_of(client), thread="t1", call=call_digest("task", given)).text()
        unknown = await again(client, given, state, {SECRET: accept(decision="approve")})
        assert unknown.structured_content["error"]["code"] == "unknown_pause"
        assert SECRET not in json.dumps(unknown.structured_content)


@pytest.mark.requirement("R1")
def test_the_state_holds_nothing_of_the_role_or_the_skill() -> None:
    one = {"thread": "t1", "role": {"content": SECRET}, "skill": {"prompt": SECRET}}
    other = {"thread": "t1", "role": {"content": "another"}, "skill": {"prompt": "another"}}
    assert (
        call_digest("run_skill", one) == call_digest("run_skill", other) == call_digest("run_skill", {"thread": "t1"})
    )
    assert call_digest("run_skill", one) != call_digest("task", one)
