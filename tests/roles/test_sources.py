"""Where roles come from: all tiers at once, time limits, outages, caching, the embedded store."""

import asyncio
import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent, streamed
from support.broken_hosts import MemoryStore
from support.role_hosts import StoreKind, on_every_store, stored
from worldagent import Role, Roles, Tier
from worldagent.core import Scope
from worldagent.core.errors import (
    InvalidArgument,
    RoleInvalid,
    RoleNotStorable,
    RoleSourceInvalid,
    RoleSourceUnavailable,
    RoleTooLong,
    UnknownTier,
)
from worldagent.testing import ScriptedLM, VirtualClock


class OwnStore(MemoryStore):
    """A role store of an embedder's own, which counts its round trips."""

    lists = 0

    async def list(self, scope_ids: Mapping[Tier, str]) -> dict[Tier, Role]:
        self.lists += 1
        return await super().list(scope_ids)


async def thread_source(scope: Scope) -> Role | None:
    return Role("thread", f"thread of {scope.thread}")


async def channel_source(scope: Scope) -> Role | None:
    return Role("channel", f"channel of {scope.channel}")


@pytest.mark.requirement("R2", "R3", "R8")
@on_every_store
async def test_all_five_tiers_meet_in_one_turn_lowest_first(tmp_path: Path, kind: StoreKind) -> None:
    lm = answering()
    with stored(kind, tmp_path, sources={Tier.THREAD: thread_source, Tier.CHANNEL: channel_source}) as given:
        async with scripted_agent(tmp_path, lm, **given) as agent:
            await agent.roles.put(Tier.WORKSPACE, Role("house", "the house"))
            await agent.roles.put("account", Role("ana", "ana's own"), scope_id="ana")
            turn = await agent.thread("t1", account="ana", channel="c7").converse("Hi", role=Role("c", "the call"))
    assert turn.role_tiers == (Tier.ACCOUNT, Tier.WORKSPACE, Tier.CHANNEL, Tier.THREAD, Tier.CALL)
    [call] = lm.calls
    assert call.role is not None
    contents = ["ana's own", "the house", "channel of c7", "thread of t1", "the call"]
    places = [call.role.index(content) for content in contents]
    assert places == sorted(places)


@pytest.mark.requirement("R3")
async def test_tiers_are_asked_at_the_same_time_and_before_the_model(tmp_path: Path) -> None:
    started = {Tier.THREAD: asyncio.Event(), Tier.CHANNEL: asyncio.Event()}
    lm = answering()

    def source(own: Tier, other: Tier) -> Any:
        async def ask(scope: Scope) -> Role | None:
            started[own].set()
            await asyncio.wait_for(started[other].wait(), 10)
            assert not lm.calls
            return None

        return ask

    roles = Roles(
        sources={Tier.THREAD: source(Tier.THREAD, Tier.CHANNEL), Tier.CHANNEL: source(Tier.CHANNEL, Tier.THREAD)}
    )
    async with scripted_agent(tmp_path, lm, roles=roles) as agent:
        turn = await agent.thread("t1", channel="c7").converse("Hi")
    assert turn.role_tiers == ()
    assert len(lm.calls) == 1


async def _down(scope: Scope) -> Role | None:
    raise ConnectionError("10.0.0.7 says no")


async def _garbage(scope: Scope) -> Any:
    return "Be harsh."


async def _late(scope: Scope) -> Role | None:
    await asyncio.Event().wait()
    return None


@pytest.mark.requirement("R14")
@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        (_down, RoleSourceUnavailable, "ConnectionError"),
        (_late, RoleSourceUnavailable, "within 0.05 s"),
        (_garbage, RoleSourceInvalid, "not a role"),
    ],
)
async def test_failing_source_ends_the_turn(tmp_path: Path, source: Any, error: type[Exception], says: str) -> None:
    lm = answering()
    roles = Roles(sources={Tier.CHANNEL: source})
    async with scripted_agent(tmp_path, lm, roles=roles, settings={"role_timeout": 0.05}) as agent:
        thread = agent.thread("t1", channel="c7")
        with pytest.raises(error, match=says) as caught:
            await thread.converse("Hi")
        assert "channel" in str(caught.value)
        assert "10.0.0.7" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert str(caught.value).endswith(caught.value.remedy)  # type: ignore[attr-defined]  # all of ours have one
        assert lm.calls == []
        assert await thread.history() == ()
        assert (await agent.thread("t1").converse("no channel, no source")).text == "Fine."


@pytest.mark.requirement("R14")
async def test_skipped_tier_is_reported(tmp_path: Path) -> None:
    roles = Roles(sources={Tier.CHANNEL: _down}, on_unavailable="skip")
    async with scripted_agent(tmp_path, answering(), roles=roles) as agent:
        thread = agent.thread("t1", channel="c7")
        turn, events = await streamed(thread.stream("Hi", role=Role("c", "Be harsh.")))
    assert [(e.tier, e.code) for e in events if e.type == "role_tier_skipped"] == [
        (Tier.CHANNEL, "role_source_unavailable")
    ]
    assert turn.skipped_tiers == (Tier.CHANNEL,)
    assert turn.role_tiers == (Tier.CALL,)


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("roles", [Roles(), Roles(host=OwnStore())], ids=["embedded", "own"])
async def test_stored_roles_are_put_got_listed_replaced_and_deleted(tmp_path: Path, roles: Roles) -> None:
    async with scripted_agent(tmp_path, answering(), roles=roles) as agent:
        assert await agent.roles.get(Tier.WORKSPACE) is None
        await agent.roles.put(Tier.WORKSPACE, Role("house", "first"))
        await agent.roles.put(Tier.WORKSPACE, Role("house", "second"))
        await agent.roles.put(Tier.ACCOUNT, Role("ana", "hers"), scope_id="ana")
        assert await agent.roles.get("workspace") == Role("house", "second")
        assert await agent.roles.list({Tier.WORKSPACE: "novel", Tier.ACCOUNT: "ana"}) == {
            Tier.WORKSPACE: Role("house", "second"),
            Tier.ACCOUNT: Role("ana", "hers"),
        }
        assert await agent.roles.list() == {Tier.WORKSPACE: Role("house", "second")}
        assert await agent.roles.delete(Tier.WORKSPACE) is True
        assert await agent.roles.delete(Tier.WORKSPACE) is False
        assert await agent.roles.list() == {}


@pytest.mark.requirement("R9")
async def test_stored_roles_outlive_the_process_in_a_file_of_their_own(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("house", "Kept words of the house."))
    assert b"Kept words of the house." in (tmp_path / "roles.db").read_bytes()
    assert b"Kept words" not in (tmp_path / "agent.db").read_bytes()
    async with scripted_agent(tmp_path, answering()) as agent:
        assert await agent.roles.get(Tier.WORKSPACE) == Role("house", "Kept words of the house.")


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("role", [Role("x", "y", applies_to="critic"), Role("x", "y", exclusive=True)])
async def test_a_role_with_applicability_of_its_own_cannot_be_stored(tmp_path: Path, role: Role) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("house", "first"))
        with pytest.raises(RoleNotStorable, match="'x'"):
            await agent.roles.put(Tier.WORKSPACE, role)
        assert await agent.roles.get(Tier.WORKSPACE) == Role("house", "first")


@pytest.mark.requirement("R9", "R15")
async def test_bad_tiers_and_scopes_are_refused_with_the_remedy(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        with pytest.raises(UnknownTier, match=r"'planet'.*use one of call, thread, channel, workspace, account"):
            await agent.roles.put("planet", Role("x", "y"))
        with pytest.raises(UnknownTier, match="call"):
            await agent.roles.put(Tier.CALL, Role("x", "y"), scope_id="s")
        with pytest.raises(InvalidArgument, match="account role needs a scope"):
            await agent.roles.get(Tier.ACCOUNT)
        with pytest.raises(InvalidArgument, match="account scope"):
            await agent.roles.get(Tier.ACCOUNT, scope_id="")
        with pytest.raises(RoleInvalid, match="str"):
            await agent.roles.put(Tier.WORKSPACE, "Be harsh.")  # type: ignore[arg-type]  # the mistake that is tested


@pytest.mark.requirement("R15")
async def test_33_kib_of_role_are_refused_wherever_they_come_from(tmp_path: Path) -> None:
    long = Role("long", "é" * (33 * 512))

    async def source(scope: Scope) -> Role | None:
        return long

    lm = answering()
    async with scripted_agent(tmp_path, lm, roles=Roles(sources={Tier.CHANNEL: source})) as agent:
        with pytest.raises(RoleTooLong, match="call role has 33792 bytes, and the limit is 32768"):
            await agent.thread("t").converse("Hi", role=long)
        with pytest.raises(RoleTooLong, match="workspace role"):
            await agent.roles.put(Tier.WORKSPACE, long)
        with pytest.raises(RoleTooLong, match="channel role"):
            await agent.thread("t", channel="c").converse("Hi")
        assert await agent.thread("t").history() == ()
    assert lm.calls == []
    async with scripted_agent(tmp_path, lm, settings={"role_limit": 40_000}) as agent:
        assert (await agent.thread("t").converse("Hi", role=long)).role_tiers == (Tier.CALL,)


@pytest.mark.requirement("R9")
async def test_a_stored_role_is_kept_for_its_time_and_no_longer(tmp_path: Path) -> None:
    store, clock = OwnStore(), VirtualClock()
    await store.put(Tier.WORKSPACE, "novel", Role("house", "old"))
    lm = answering()
    async with scripted_agent(tmp_path, lm, roles=Roles(host=store), clock=clock) as agent:
        thread = agent.thread("t", account="ana")
        await thread.converse("1")
        store.kept[Tier.WORKSPACE, "novel"] = Role("house", "new")  # somebody else's put
        await clock.advance(4.9)
        await thread.converse("2")
        await clock.advance(0.2)
        await thread.converse("3")
    assert [call.role for call in lm.calls] == ["old", "old", "new"]
    assert store.lists == 2


@pytest.mark.requirement("R9")
async def test_cached_roles_of_idle_accounts_are_released(tmp_path: Path) -> None:
    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, Role) and each.name == "gone" for each in gc.get_objects())

    clock = VirtualClock()
    async with scripted_agent(tmp_path, answering(), clock=clock) as agent:
        for number in range(10):
            await agent.roles.put(Tier.ACCOUNT, Role("gone", "Be brief."), scope_id=f"account{number}")
            await agent.thread(f"t{number}", account=f"account{number}").converse("Hi")
        assert kept() == 10
        await clock.advance(5.1)
        await agent.thread("t", account="ana").converse("Hi")
        assert kept() == 0


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("kind", ["embedded", "http"])
async def test_a_put_through_the_agent_is_seen_at_once(tmp_path: Path, kind: StoreKind) -> None:
    lm = answering()
    with stored(kind, tmp_path) as given:
        async with scripted_agent(tmp_path, lm, clock=VirtualClock(), **given) as agent:
            thread = agent.thread("t")
            await thread.converse("1")
            await agent.roles.put(Tier.WORKSPACE, Role("house", "now"))
            await thread.converse("2")
            await agent.roles.delete(Tier.WORKSPACE)
            await thread.converse("3")
    assert [call.role for call in lm.calls] == [None, "now", None]


@pytest.mark.requirement("R1", "R4")
async def test_explain_role_shows_order_length_and_reach_but_no_content(tmp_path: Path) -> None:
    roles = Roles(sources={Tier.THREAD: _down, Tier.CHANNEL: channel_source})
    async with scripted_agent(tmp_path, ScriptedLM([]), roles=roles) as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("house", "the house's words"))
        explained = await agent.explain_role(
            agent.thread("t1", channel="c7"), role=Role("c", "Be harsh.", applies_to="critic")
        )
    assert [(tier.tier, tier.state, tier.name, tier.length, tier.signatures) for tier in explained.tiers] == [
        (Tier.ACCOUNT, "absent", None, 0, ()),
        (Tier.WORKSPACE, "active", "house", 17, ("Converse",)),
        (Tier.CHANNEL, "active", "channel", 13, ("Converse",)),
        (Tier.THREAD, "unavailable", None, 0, ()),
        (Tier.CALL, "not_applicable", "c", 9, ()),
    ]
    assert "harsh" not in repr(explained)
    assert "words" not in repr(explained)
