"""What a member is trusted with needs no approval, and a member in testing has no effect outside (A7, A8)."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import calls, scripted_agent, told
from support.role_specs import spec_of, workspace_of
from worldagent import Policy, WorldAgent, tool
from worldagent.agent.thread import as_member
from worldagent.agent.turns import Turn
from worldagent.harness import Function
from worldagent.members import AuthorityConfig, Gateway
from worldagent.members.data.roles import RoleStatus
from worldagent.members.life.outcomes import Outcome
from worldagent.testing import ScriptedLM

NOW = datetime(2026, 2, 18, tzinfo=UTC)
AUTHORITY = AuthorityConfig(autonomous=("send_outreach", "mail", "wipe"), needs_approval=("price",))
REQUEST = {"worker": "bdr", "request": '{"message": "Write to the lead."}'}


class Office:
    """What a member can do, and what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def functions(self) -> list[Function]:
        async def rehearse(to: str) -> str:
            return f"would write to {to}"

        @tool(risk=("write", "network"), capabilities=["send_outreach"], dry_run=rehearse)
        async def mail(to: str) -> str:
            self.done.append(f"mail {to}")
            return "sent"

        @tool(risk="destructive")
        async def wipe(to: str) -> str:
            self.done.append(f"wipe {to}")
            return "wiped"

        @tool(risk="write")
        async def price(to: str) -> str:
            self.done.append(f"price {to}")
            return "set"

        return [mail, wipe, price]


async def join(agent: WorldAgent, successes: int, status: RoleStatus = RoleStatus.ACTIVE) -> None:
    """Add a member that starts at a trust of 0.3 and succeeded some times."""
    society = agent.society
    spec = spec_of("bdr", operator_ids=("mail", "wipe", "price"), authority=AUTHORITY)
    await society.join(spec, status=status)
    for number in range(successes):
        for capability in ("send_outreach", "wipe", "price"):
            episode = f"{capability}{number}"
            await society.outcomes.record(
                Outcome(episode_id=episode, role_id="bdr", capability=capability, succeeded=True, at=NOW)
            )
    await Gateway(agent).enlist("bdr")


async def acts(agent: WorldAgent) -> Turn:
    return await as_member(agent.thread("member bdr", account="member:novel/bdr"), "bdr").task("subagent", REQUEST)


async def acted(home: Path, function: str, successes: int, **more: Any) -> tuple[Turn, list[str], str]:
    """A turn of the member that an event starts, what it did, and what its model received."""
    office = Office()
    lm = ScriptedLM([calls((function, {"to": "Ada"})), {"result": "Done."}])
    config, policy = workspace_of(), more.pop("policy", Policy())
    async with scripted_agent(home, lm, tools=office.functions, society=config, policy=policy) as agent:
        await join(agent, successes, **more)
        turn = await acts(agent)
    return turn, office.done, str(told(lm.calls[-1]))


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(("successes", "done"), [(8, []), (9, ["mail Ada"])])
async def test_above_seventy_hundredths_what_a_member_may_do_alone_needs_no_approval(
    tmp_path: Path, successes: int, done: list[str]
) -> None:
    turn, found, _ = await acted(tmp_path, "mail", successes)
    assert (turn.status, found) == ("done" if done else "paused", done)


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("function", ["wipe", "price"])
async def test_no_trust_replaces_the_approval_of_a_destructive_call_or_of_one_that_needs_it(
    tmp_path: Path, function: str
) -> None:
    turn, found, _ = await acted(tmp_path, function, 14)
    assert (turn.status, found) == ("paused", [])


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("function", ["mail", "wipe"])
async def test_a_policy_that_refuses_counts_whatever_the_trust_is(tmp_path: Path, function: str) -> None:
    turn, found, said = await acted(tmp_path, function, 14, policy=Policy(default="refuse"))
    assert (turn.status, found) == ("done", [])
    assert "nothing in the policy allows it" in said


@pytest.mark.requirement("A8")
async def test_feedback_on_a_turn_changes_the_trust_of_who_acted_in_it(tmp_path: Path) -> None:
    lm = ScriptedLM([{"result": "Done."}])
    async with scripted_agent(tmp_path, lm, society=workspace_of()) as agent:
        await join(agent, 9)
        turn = await acts(agent)
        done = Outcome(episode_id="e", role_id="bdr", capability="mail", succeeded=True, at=NOW, turn_id=turn.id)
        await agent.society.outcomes.record(done)
        await agent.thread(turn.thread).feedback(turn.id, "bad")
        assert (await agent.society.members.member("novel", "bdr")).trust.trust_for("mail") == 0.15


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("function", ["send_message", "request_role"])
async def test_messages_of_a_member_in_testing_are_recorded_and_not_delivered(tmp_path: Path, function: str) -> None:
    lm = ScriptedLM([calls((function, {"to": "user", "content": "Hello.", "reason": "A test."})), {"result": "Done."}])
    async with scripted_agent(tmp_path, lm, society=workspace_of()) as agent:
        await join(agent, 0, RoleStatus.TESTING)
        turn = await acts(agent)
        assert turn.status == "done"
        assert "the message to user is recorded" in str(told(lm.calls[-1]))
        assert [each.message.content for each in await agent.society.mail.recorded("bdr")] == ["Hello."]
        assert (await agent.society.mail.inbox(), await agent.society.mail.waiting()) == ([], [])


@pytest.mark.requirement("A7")
@pytest.mark.parametrize(
    ("function", "said"), [("mail", "would write to Ada"), ("wipe", "allows dry runs only, and it has none")]
)
async def test_a_member_in_testing_has_no_effect_outside(tmp_path: Path, function: str, said: str) -> None:
    turn, found, heard = await acted(tmp_path, function, 14, status=RoleStatus.TESTING)
    assert (turn.status, found) == ("done", [])
    assert said in heard
