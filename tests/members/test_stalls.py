"""What stands still or goes round is found, and told to the owner once with what to do (A18)."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.role_specs import spec_of, workspace_of
from support.society import DEVELOPER, acting, enlisted, office, request, send
from worldagent import WorldAgent
from worldagent.core.errors import InvalidArgument
from worldagent.core.events import StallFound
from worldagent.members import AutonomousRole, Contact, Event, Gateway, WorkspacePolicy
from worldagent.members.data.workspace import RoutingDecision
from worldagent.members.stalls import Forwarded, Mailbox, Sent, Snapshot, Wait, find_stalls
from worldagent.testing import VirtualClock

NOW = datetime(2030, 1, 2, 12, tzinfo=UTC)
HOUR = 3600
POLICY = WorkspacePolicy(wait_alarm=HOUR, mailbox_alarm=2 * HOUR, exchange_alarm=4)


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def kinds(seen: Snapshot) -> list[tuple[str, tuple[str, ...], datetime]]:
    return [(each.kind, each.members, each.since) for each in find_stalls(seen, POLICY)]


# --- in a snapshot ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A18")
def test_a_wait_and_a_mailbox_are_stalls_once_the_policy_says_so() -> None:
    waits = (Wait("a", ("b",), ago(1)), Wait("b", ("c",), ago(0.9)))
    mailboxes = (Mailbox("d", ago(2)), Mailbox("e", ago(1.9)))
    found = find_stalls(Snapshot(NOW, waits=waits, mailboxes=mailboxes), POLICY)
    assert [(each.kind, each.members, each.since) for each in found] == [
        ("long_wait", ("a", "b"), ago(1)),
        ("mailbox", ("d",), ago(2)),
    ]
    assert found[0].what == "a waits for the reply of b"
    assert all(each.remedy for each in found)


def exchange(*chains: int) -> tuple[Sent, ...]:
    """What `a` and `b` sent each other, the newest first: the messages of `a` have odd places in their chain."""
    return tuple(Sent("ba"[chain % 2], "ab"[chain % 2], chain, ago(10 - chain)) for chain in chains)


@pytest.mark.requirement("A18")
@pytest.mark.parametrize(
    ("sent", "first"),
    [
        (exchange(9, 8, 7, 6, 5), 5),
        (exchange(9, 8, 7, 6), None),
        (exchange(9, 8, 6, 5, 4), None),  # another member was between them
        (exchange(9, 8, 9, 7, 3, 6, 5, 2), 5),  # some are of another chain
    ],
)
def test_ping_pong_is_a_run_of_messages_of_two_members_in_one_chain(sent: tuple[Sent, ...], first: int | None) -> None:
    expected = [] if first is None else [("ping_pong", ("a", "b"), ago(10 - first))]
    assert kinds(Snapshot(NOW, exchanges=(sent,))) == expected


@pytest.mark.requirement("A18")
def test_events_that_come_back_to_a_member_are_one_stall_of_these_members() -> None:
    paths = (("a", "b"), ("x", "b", "a", "b"), ("a", "b", "a"), ("c", "d", "e"))
    seen = tuple(Forwarded(path, ago(4 - place)) for place, path in enumerate(paths))
    [stall] = find_stalls(Snapshot(NOW, forwarded=seen), POLICY)
    assert (stall.kind, stall.members, stall.since) == ("forwards", ("a", "b"), ago(3))
    assert stall.what == "a and b forward events in a circle: 2 today"
    later = find_stalls(Snapshot(NOW, forwarded=seen[2:]), POLICY)
    assert [each.id for each in later] == [stall.id], "one message a day"


@pytest.mark.parametrize(
    ("field", "value"), [("wait_alarm", -1), ("mailbox_alarm", float("inf")), ("exchange_alarm", 0)]
)
def test_an_alarm_that_can_never_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidArgument, match=f"`{field}`"):
        WorkspacePolicy(**{field: value})  # type: ignore[arg-type]


# --- in a workspace ---------------------------------------------------------------------------------------------------


async def told(agent: WorldAgent) -> list[str]:
    """What the owner was told of stalls, and has not read."""
    inbox = await agent.society.mail.inbox()
    return [str(each.message.payload["stall"]) for each in inbox if "stall" in each.message.payload]


@pytest.mark.requirement("A18")
@pytest.mark.on_every_database
async def test_the_owner_is_told_once_of_a_long_wait_and_again_of_the_next_one(tmp_path: Path) -> None:
    clock = VirtualClock()
    lm = acting(cro=request("user", "May I?", seconds=30 * 24 * HOUR))
    async with office(tmp_path, lm, clock=clock) as agent:
        await enlisted(agent, "cro")
        events = agent.events(account="charles")
        gateway = Gateway(agent)
        for number in (1, 2):
            await agent.society.mail.send("root", "cro", "Report.")
            await gateway.deliver()
            await clock.advance(6 * HOUR - 1)
            await gateway.deliver()
            assert len(await told(agent)) == number - 1
            await clock.advance(61)
            assert (await gateway.deliver(), await Gateway(agent).deliver()) == (0, 0)
            assert await told(agent) == ["long_wait"] * number
            [stall] = await agent.society.stalls()
            assert (stall.members, gateway.stalls) == (("cro", "user"), (stall,))
            counted = {"stalls_long_wait": 1, "stalls_mailbox": 0, "stalls_ping_pong": 0, "stalls_forwards": 0}
            assert gateway.stall_counts() == counted
            event = await asyncio.wait_for(anext(events), 5)
            assert isinstance(event, StallFound)
            assert (event.turn_id, event.kind, event.members, event.since, event.remedy) == (
                *(stall.id, "long_wait", ("cro", "user"), stall.since),
                "see what keeps user from replying, or cancel the turn of cro",
            )
            question = next(each for each in await agent.society.mail.inbox() if each.message.content == "May I?")
            await agent.society.mail.send("user", "cro", "Yes.", answers=question.message.id)
            await agent.society.mail.read(question.message.id)
            await gateway.deliver()
            assert await agent.society.stalls() == ()


@pytest.mark.requirement("A18", "A20")
@pytest.mark.on_every_database
async def test_a_group_that_waits_long_is_one_stall_and_told_once_while_some_answer(tmp_path: Path) -> None:
    clock = VirtualClock()
    asked: dict[str, Any] = {
        "members": ["user", "ada"],
        "request": "May we?",
        "reason": "A vote.",
        "deadline": 72 * HOUR,
    }
    lm = acting(cro=("ask_group", asked), ada=request("user", "May I?", seconds=72 * HOUR))
    async with office(tmp_path, lm, clock=clock) as agent:
        await enlisted(agent, "cro")
        await enlisted(agent, "ada")
        await agent.society.contacts.add("cro", Contact(id="ada", role="Ada"))
        await agent.society.mail.send("root", "cro", "Report.")
        gateway = Gateway(agent)
        await gateway.deliver()
        await clock.advance(6 * HOUR + 61)
        await gateway.deliver()
        [stall, _] = await agent.society.stalls()
        assert (stall.members, stall.what) == (("cro", "ada", "user"), "cro waits for the replies of ada and user")
        question = next(each for each in await agent.society.mail.inbox() if each.message.content == "May we?")
        await agent.society.mail.send("user", "cro", "Yes.", answers=question.message.id)
        await clock.advance(61)
        await gateway.deliver()
        assert [each.members for each in await agent.society.stalls()] == [("cro", "ada"), ("ada", "user")]
        assert await told(agent) == ["long_wait", "long_wait"]


@pytest.mark.requirement("A18")
@pytest.mark.on_every_database
async def test_a_mailbox_whose_turn_waits_for_an_approval_stands(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with office(tmp_path, acting(cro=("deploy", {"where": "everywhere"})), clock=clock) as agent:
        await enlisted(agent, "cro")
        await agent.society.mail.send("root", "cro", "Deploy.")
        await clock.advance(23 * HOUR)
        gateway = Gateway(agent)
        await gateway.deliver()
        await clock.advance(2 * HOUR)
        await gateway.deliver()
        assert await told(agent) == [], "its turn began two hours ago"
        await clock.advance(23 * HOUR)
        await gateway.deliver()
        [message] = [each for each in await agent.society.mail.inbox() if "stall" in each.message.payload]
        text = await agent.society.mail.text_of(message)
        assert "From the system: the mailbox of cro does not move." in text
        assert "remedy: answer the approvals and questions of its turn, run a gateway, or cancel the turn" in text


@pytest.mark.requirement("A18")
@pytest.mark.on_every_database
async def test_two_members_that_write_to_each_other_without_end_are_found_below_the_chain(tmp_path: Path) -> None:
    lm = acting(cro=send("coo", "Ping."), coo=send("cro", "Pong."))
    society = workspace_of(DEVELOPER, exchange_alarm=4)
    async with office(tmp_path, lm, clock=VirtualClock(), society=society) as agent:
        await enlisted(agent, "cro", "coo")
        await agent.society.mail.send("root", "cro", "Go.")
        gateway, found = Gateway(agent), list[int]()
        for _ in range(7):
            await gateway.deliver()
            found.append(len(await agent.society.stalls()))
        assert found == [0, 0, 0, 0, 1, 1, 1]
        [stall] = await agent.society.stalls()
        assert (stall.kind, stall.members) == ("ping_pong", ("coo", "cro"))
        assert stall.what == "coo and cro have sent each other 7 messages in a row"


class Passes(AutonomousRole):
    """A member that passes every event on."""

    to = ""

    def handle(self, event: Event, roster: Any = None) -> Any:
        return RoutingDecision(action="forward", reason="not mine", target_role_id=self.to)


@pytest.mark.requirement("A18")
@pytest.mark.on_every_database
async def test_members_that_forward_events_to_each_other_are_found(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with office(tmp_path, acting(), clock=clock) as agent:
        roles = []
        for id_, other in (("ping", "pong"), ("pong", "ping")):
            spec = spec_of(id_, domains=("revenue",))
            await agent.society.join(spec)
            roles.append(Passes(spec))
            roles[-1].to = other
        gateway = Gateway(agent, roles=roles)
        for number in (1, 2):
            event = Event(
                id=f"e{number}", type="lead", source="crm", domain="revenue", payload={}, timestamp=clock.now()
            )
            await agent.society.events.post(event)
            while await gateway.deliver():
                await clock.advance(61)
            [stall] = await agent.society.stalls()
            assert (stall.kind, stall.members) == ("forwards", ("ping", "pong"))
            assert stall.what == f"ping and pong forward events in a circle: {number} today"
        assert await told(agent) == ["forwards"]
        await clock.advance(24 * HOUR)
        assert await agent.society.stalls() == ()
