"""What members did, what people say of it, and the trust that follows (A8)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.role_specs import spec_of, workspace_of
from worldagent.core.errors import InvalidArgument, UnknownEpisode
from worldagent.members import Society, WorkspacePolicy
from worldagent.members.data.roles import Feedback, RoleStatus, TrustProfile
from worldagent.members.life.members import new_member
from worldagent.members.life.outcomes import Outcome, replayed
from worldagent.storage import Database

NOW = datetime(2026, 2, 18, tzinfo=UTC)


@pytest.fixture
async def society(database: Database) -> Society:
    made = Society(workspace_of(id="w", default_trust=0.5), database)
    await made.join(spec_of("bdr", workspace="w"))
    return made


def outcome(
    number: int, *, succeeded: bool = True, capability: str = "qualify_lead", feedback: Feedback | None = None
) -> Outcome:
    return Outcome(
        episode_id=f"e{number}",
        role_id="bdr",
        capability=capability,
        succeeded=succeeded,
        at=NOW,
        turn_id=f"t{number // 2}",
        feedback=feedback,
    )


async def trust(society: Society) -> TrustProfile:
    return (await society.members.member("w", "bdr")).trust


async def test_trust_begins_as_the_workspace_says_and_follows_what_a_member_did(society: Society) -> None:
    assert (await trust(society)).trust_for("qualify_lead") == 0.5
    await society.outcomes.record(outcome(0))
    await society.outcomes.record(outcome(1, succeeded=False))
    await society.outcomes.record(outcome(2, capability="send_outreach"))
    found = await trust(society)
    assert (found.scores, found.default) == ({"qualify_lead": 0.55, "send_outreach": 0.55}, 0.5)


async def test_an_episode_counts_once_also_from_many_at_once(society: Society) -> None:
    added = await asyncio.gather(*(society.outcomes.record(outcome(number % 5)) for number in range(20)))
    assert sum(added) == 5
    assert (await trust(society)).scores == {"qualify_lead": 0.75}
    assert len(await society.outcomes.list("bdr")) == 5


async def test_feedback_replaces_what_the_episode_did_to_the_trust(society: Society) -> None:
    for number in range(10):
        await society.outcomes.record(outcome(number))
    assert (await trust(society)).scores == {"qualify_lead": 1.0}
    # The place of an episode counts: before nine good ones it takes 0.15 and one 0.05, after the top only 0.15.
    assert (await society.outcomes.rate("e0", "bad")).scores == {"qualify_lead": 0.8}
    assert (await society.outcomes.rate("e0", "good")).scores == {"qualify_lead": 1.0}
    await society.outcomes.record(outcome(10))
    assert (await society.outcomes.rate("e10", "bad")).scores == {"qualify_lead": 0.85}
    assert (await society.outcomes.rate("e10", None)).scores == {"qualify_lead": 1.0}
    assert await trust(society) == await society.outcomes.rate("e3", None)


async def test_each_change_of_trust_has_its_time_and_its_reason(society: Society) -> None:
    assert await society.outcomes.changes("bdr") == ()
    for number, succeeded in enumerate((True, False, True)):
        await society.outcomes.record(outcome(number, succeeded=succeeded))
    await society.outcomes.rate("e0", "bad")
    changes = await society.outcomes.changes("bdr")
    assert [(each.outcome.episode_id, each.change, each.trust, each.reason) for each in changes] == [
        ("e0", -0.15, 0.35, "a person said bad"),
        ("e1", 0, 0.35, "it failed"),
        ("e2", 0.05, 0.4, "it succeeded"),
    ]
    assert changes[0].at > NOW == changes[1].at == changes[2].at
    assert changes[-1].trust == (await trust(society)).trust_for("qualify_lead")


async def test_feedback_on_a_turn_is_for_all_that_was_done_in_it(society: Society) -> None:
    for number in range(4):
        await society.outcomes.record(outcome(number))
    assert await society.outcomes.rate_turn("t0", "bad") == 2
    assert [each.feedback for each in await society.outcomes.list("bdr")] == ["bad", "bad", None, None]
    assert (await trust(society)).scores == {"qualify_lead": 0.3}
    assert await society.outcomes.rate_turn("other", "bad") == 0


async def test_what_is_not_known_is_refused(society: Society) -> None:
    with pytest.raises(UnknownEpisode, match="'e7'"):
        await society.outcomes.rate("e7", "good")
    with pytest.raises(InvalidArgument, match="feedback"):
        await society.outcomes.rate("e7", "fine")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="succeeded"):
        outcome(1, succeeded="yes")  # type: ignore[arg-type]


async def test_a_member_that_is_removed_leaves_no_outcome(society: Society) -> None:
    await society.outcomes.record(outcome(0))
    await society.members.remove("w", "bdr")
    assert await society.outcomes.list("bdr") == ()
    assert not await society.outcomes.record(outcome(1))


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.sampled_from([None, "good", "bad"])), max_size=60)


@given(STEPS, st.integers(0, 100), st.integers(0, 100))
def test_trust_is_that_of_a_table_of_hundredths(
    steps: Sequence[tuple[str, bool, Feedback | None]], default: int, first: int
) -> None:
    """A8 in whole hundredths, without the code: feedback outranks the outcome, and nothing leaves 0 to 1."""
    spec = replace(spec_of("bdr", workspace="w"), trust=TrustProfile(scores={"a": first / 100}, default=default / 100))
    member = new_member(spec, "", None, RoleStatus.ACTIVE, NOW, WorkspacePolicy())
    log = [
        outcome(number, capability=capability, succeeded=succeeded, feedback=feedback)
        for number, (capability, succeeded, feedback) in enumerate(steps)
    ]
    told = {(True, None): 5, (False, None): 0}
    expected = {"a": first}
    for capability, succeeded, feedback in steps:
        change = {"good": 5, "bad": -15}.get(feedback or "", told[succeeded, None])
        if change:
            expected[capability] = min(100, max(0, expected.get(capability, default) + change))
    found = replayed(member, log)
    assert {name: round(score * 100) for name, score in found.scores.items()} == expected
