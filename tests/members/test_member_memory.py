"""What members remember and what they can read: episodes, insights and facts (A1, A11, A14)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent
from support.role_specs import spec_of, workspace_of
from support.society import able, acting
from worldagent import Memory, Policy, Rule, WorldAgent
from worldagent.agent.runtime.inside import inside
from worldagent.agent.starts import StartMessage
from worldagent.core.errors import InvalidArgument, UnknownEntry
from worldagent.hosts.service.call import Refused
from worldagent.hosts.web import Grant
from worldagent.members import AgentMemory, Gateway
from worldagent.members.data.roles import ClearanceProfile
from worldagent.members.life.memory import MemoryFiles, Values
from worldagent.members.life.reading import reader_of
from worldagent.memory.entries import Change, Classification, Episode, Insight, Reader
from worldagent.testing import ScriptedCall, ScriptedLM

NOW = datetime(2027, 1, 1, tzinfo=UTC)
_FACTS: tuple[tuple[str, Classification, str], ...] = (
    ("The harbour fee.", "public", "revenue"),
    ("The harbour margin.", "internal", "revenue"),
    ("The harbour price.", "confidential", "revenue"),
    ("The harbour salary.", "confidential", "people"),
    ("The harbour merger.", "secret", "revenue"),
)
_ADMITTED = {"cro": {"fee", "margin", "price"}, "bdr": {"fee", "margin"}, "intern": {"fee"}}
"""What of the facts the clearance of each member admits."""


@asynccontextmanager
async def society(home: Path, lm: ScriptedLM | None = None, **policy: Any) -> AsyncGenerator[WorldAgent]:
    """A society with a CRO that may know what is confidential of revenue, a BDR, and an intern."""
    async with scripted_agent(home, lm or acting(), society=workspace_of(**policy), memory=Memory()) as agent:
        revenue = ClearanceProfile(domains={"revenue": "confidential"})
        await agent.society.join(spec_of("cro", clearance=revenue, operator_ids=("recall",)))
        await agent.society.join(spec_of("bdr"))
        await agent.society.join(spec_of("intern", clearance=ClearanceProfile(default="public")))
        yield agent


def episode(number: int, role_id: str = "cro", **more: Any) -> Episode:
    given: dict[str, Any] = {
        "id": f"e{number}",
        "outcome": {"success": True},
        "at": NOW + timedelta(hours=number),
        "text": f"Lead {number} was qualified.",
        "domain": "revenue",
        "tags": {"territory": "APAC"},
        "payload": {"company": f"c{number}"},
        "seconds": 1.5,
    }
    return Episode(role_id=role_id, action="qualify_lead", **given | more)


def insight(text: str, role_id: str = "cro", **more: Any) -> Insight:
    given: dict[str, Any] = {"confidence": 0.9, "domain": "revenue", "episodes": ("e1", "e2")}
    return Insight(id=f"ins-{role_id}-{len(text)}", role_id=role_id, text=text, **given | more)


def texts(found: Iterable[Any]) -> list[str]:
    return [each.text for each in found]


async def add_facts(agent: WorldAgent) -> None:
    for text, classification, domain in _FACTS:
        await agent.memory.add(text, kind="fact", classification=classification, domain=domain)


async def reader(agent: WorldAgent, role_id: str) -> Reader:
    found = await reader_of(agent.society, f"member:novel/{role_id}")
    assert found is not None
    return found


# --- episodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A11", "M1")
@pytest.mark.on_every_database
async def test_an_episode_comes_back_as_it_was_recorded_and_is_kept_once(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        memory, first = AgentMemory(agent, "cro"), episode(1)
        assert await memory.record_episode(first) == first
        assert await memory.record_episode(episode(1, text="Another.")) == first
        assert await memory.episodes() == (first,)
        bare = Episode(id="e2", role_id="cro", action="call", outcome={}, at=NOW)
        assert (await memory.record_episode(bare), bare.text, bare.succeeded) == (bare, "", False)


@pytest.mark.requirement("A11")
async def test_episodes_are_listed_newest_first_and_by_what_they_were(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        memory = AgentMemory(agent, "cro")
        for number in range(1, 5):
            await memory.record_episode(episode(number, domain="revenue" if number < 4 else "people"))
        await AgentMemory(agent, "bdr").record_episode(episode(9, "bdr"))
        assert [each.id for each in await memory.episodes()] == ["e4", "e3", "e2", "e1"]
        assert [each.id for each in await memory.episodes(domain="people")] == ["e4"]
        assert [each.id for each in await memory.episodes(since=NOW + timedelta(hours=3))] == ["e4", "e3"]
        assert [each.id for each in await memory.episodes(limit=2)] == ["e4", "e3"]
        assert await memory.episodes(action="sign_contracts") == ()


@pytest.mark.requirement("A11")
async def test_an_episode_or_insight_of_another_member_is_refused(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        memory = AgentMemory(agent, "bdr")
        with pytest.raises(InvalidArgument, match=r"is of 'cro', not of 'bdr'; record"):
            await memory.record_episode(episode(1))
        with pytest.raises(InvalidArgument, match=r"is of 'cro'; give it"):
            await memory.store_insights([insight("Deals close late.")])


@pytest.mark.requirement("M4", "A11")
async def test_the_account_of_a_member_has_what_it_remembers(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        memory = AgentMemory(agent, "cro")
        await memory.record_episode(episode(1))
        await memory.store_insights([insight("Deals close late.")])
        [told, _] = [each async for each in agent.memory.export(account="member:novel/cro")]
        assert told["data"]["episodes"] == ["e1", "e2"]
        await agent.upkeep.remove_account("member:novel/cro")
        assert (await memory.episodes(), await memory.recall_insights()) == ((), ())
        assert await agent.memory.import_lines([told]) == 1
        assert (await memory.recall_insights())[0].episodes == ("e1", "e2")


@pytest.mark.requirement("M4", "A11")
async def test_a_chat_with_the_account_of_a_member_is_refused(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        await AgentMemory(agent, "cro").store_insights([insight("Deals close late.")])
        thread = agent.thread("chat", account="member:novel/cro")
        starts: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: thread.converse("What do you know of deals?"),
            lambda: agent.submit(StartMessage("Deals?"), thread=thread),
        )
        for start in starts:
            with pytest.raises(InvalidArgument, match="'member:novel/cro' is the account of a member, and this turn"):
                await start()
    with pytest.raises(InvalidArgument, match="is the account of a member; log people in"):
        Grant.of_account("novel", "member:novel/cro")
    with pytest.raises(Refused, match="does not reach this account"):
        Grant(["novel"], ["*"]).caller("novel", "member:novel/cro")
    listed = Grant(["novel"], ["member:novel/cro", "ana"]).caller("novel", "member:novel/cro")
    assert listed.account == "member:novel/cro"


# --- insights and facts -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("A11")
async def test_insights_are_recalled_by_query_domain_and_tags(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        memory = AgentMemory(agent, "cro")
        await memory.store_insights(
            [
                insight("APAC leads answer in the morning.", tags=("apac", "time")),
                insight("Contracts with a pilot close sooner.", domain="deals", tags=("pilot",)),
            ]
        )
        await memory.record_episode(episode(1, text="A pilot of contracts was sold."))
        assert texts(await memory.recall_insights("pilot contracts")) == ["Contracts with a pilot close sooner."]
        assert texts(await memory.recall_insights(domain="revenue")) == ["APAC leads answer in the morning."]
        assert texts(await memory.recall_insights(tags=["pilot", "none"])) == ["Contracts with a pilot close sooner."]
        assert len(await memory.recall_insights(limit=1)) == 1


@pytest.mark.requirement("A11", "M5")
async def test_confident_insights_become_facts_classified_as_they_are(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        memory = AgentMemory(agent, "cro")
        await memory.store_insights(
            [
                insight("Pilots close sooner.", confidence=0.8),
                insight("Discounts are not needed.", classification="confidential", untrusted=("page",)),
                insight("Mondays may be bad.", confidence=0.79),
            ]
        )
        facts = await memory.publish_to_workspace()
        assert await memory.publish_to_workspace() == facts
        told = {each.text: (each.classification, each.source, each.untrusted) for each in facts}
        assert told == {
            "Pilots close sooner.": ("internal", "cro", ()),
            "Discounts are not needed.": ("confidential", "cro", ("page",)),
        }
        assert texts(await AgentMemory(agent, "bdr").facts()) == ["Pilots close sooner."]
        assert await AgentMemory(agent, "intern").facts() == ()


@pytest.mark.requirement("A11")
async def test_an_insight_that_its_member_may_not_know_is_not_inherited(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        given = [insight("Prices fall.", "bdr", classification="confidential"), insight("Pilots close.", "bdr")]
        assert texts(await AgentMemory(agent, "bdr").store_insights(given)) == ["Pilots close."]


# --- reflecting -------------------------------------------------------------------------------------------------------


def reflecting(*lessons: dict[str, Any]) -> ScriptedLM:
    return ScriptedLM(lambda call: {"insights": [*lessons]})


def lesson(text: str, *episodes: int, **more: Any) -> dict[str, Any]:
    return {"text": text, "confidence": 0.8, "tags": ["apac"], "episodes": [*episodes], **more}


@pytest.mark.requirement("A11")
async def test_reflecting_makes_insights_of_two_episodes_or_more(tmp_path: Path) -> None:
    lm = reflecting(
        lesson("Leads in APAC are good.", 1, 2),
        lesson("One lead was good.", 1, 1),
        lesson("Unknown episodes.", 7, 8),
        lesson(" ", 1, 2),
    )
    async with society(tmp_path, lm) as agent:
        memory = AgentMemory(agent, "cro")
        await memory.record_episode(episode(1))
        assert (await memory.reflect(), lm.calls) == ((), [])
        await memory.record_episode(episode(2))
        [made] = await memory.reflect()
        assert (made.text, made.role_id, made.episodes) == ("Leads in APAC are good.", "cro", ("e2", "e1"))
        assert (made.domain, made.tags, made.confidence, made.classification) == ("revenue", ("apac",), 0.8, "internal")
        assert "qualify_lead succeeded, territory APAC. Lead 2 was qualified." in lm.calls[0].text
        assert (await memory.reflect(), len(lm.calls)) == ((), 1)
        assert (await agent.usage(account="member:novel/cro")).tokens > 0


@pytest.mark.requirement("A11", "M5")
async def test_an_insight_is_classified_and_marked_as_its_episodes_which_are_read_apart(tmp_path: Path) -> None:
    lm = reflecting(lesson("It goes well.", 1, 2))
    async with society(tmp_path, lm) as agent:
        memory = AgentMemory(agent, "cro")
        kinds: list[dict[str, Any]] = [{}, {"classification": "confidential"}, {"untrusted": ["page"]}, {"domain": "x"}]
        for place, kind in enumerate(kinds):
            for number in (2 * place, 2 * place + 1):
                await memory.record_episode(episode(number, text=f"Kind {place}.", **kind))
        made = await memory.reflect()
        assert sorted((each.classification, each.domain, each.untrusted) for each in made) == [
            ("confidential", "revenue", ()),
            ("internal", "revenue", ()),
            ("internal", "revenue", ("page",)),
            ("internal", "x", ()),
        ]
        for call in lm.calls:
            assert sum(f"Kind {place}." in call.text for place in range(len(kinds))) == 1


@pytest.mark.requirement("A11")
async def test_two_that_reflect_on_the_same_episodes_at_once_write_once(tmp_path: Path) -> None:
    both, asked = asyncio.Event(), list[ScriptedCall]()

    async def reply(call: ScriptedCall) -> dict[str, Any]:
        asked.append(call)
        if len(asked) == 2:
            both.set()
        await both.wait()
        return {"insights": [lesson(f"Leads are good, says {len(asked)}.", 1, 2)]}

    async with society(tmp_path, ScriptedLM(reply)) as agent:
        memory = AgentMemory(agent, "cro")
        for number in (1, 2):
            await memory.record_episode(episode(number))
        async with asyncio.timeout(20):
            one, two = await asyncio.gather(memory.reflect(), memory.reflect())
        assert one == two == await memory.recall_insights()


# --- what each reads --------------------------------------------------------------------------------------------------


async def read_everywhere(agent: WorldAgent, lm: ScriptedLM, role_id: str) -> dict[str, str]:
    """What a member reads, by each way to memory that it has."""
    memory, files = AgentMemory(agent, role_id), MemoryFiles(AgentMemory(agent, role_id))
    folders = [each for each in await files.list() if each.endswith("/")]
    paths = [f"{folder}{name}" for folder in folders for name in await files.list(folder)]
    found = {
        "facts": texts(await memory.facts()),
        "facts by query": texts(await memory.facts("harbour", limit=100)),
        "insights": texts(await memory.recall_insights()),
        "insights by query": texts(await memory.recall_insights("harbour", limit=100)),
        "recall": texts(await memory.recall("harbour", limit=100)),
        "files": [await files.read(path) for path in (".directory", *paths)],
    }
    before = len(lm.calls)
    await agent.society.mail.send("root", role_id, "What of the harbour?", message_id=f"m-{role_id}")
    await Gateway(agent).deliver()
    found["turn"] = [lm.calls[before].fields["memory"]]
    if role_id == "cro":  # it alone has this function
        found["function"] = [step for call in lm.calls[before:] for step in call.steps]
    return {name: "\n".join(told) for name, told in found.items()}


@pytest.mark.requirement("A1", "A11")
@pytest.mark.on_every_database
@pytest.mark.parametrize("isolation", ["strict", "shared_read"])
async def test_each_way_to_memory_shows_what_isolation_and_clearance_admit(tmp_path: Path, isolation: str) -> None:
    lm = acting(cro=("recall", {"text": "harbour"}))
    async with society(tmp_path, lm, memory_isolation=isolation) as agent:
        await add_facts(agent)
        kinds: dict[str, Classification] = {"cro": "confidential", "bdr": "internal"}
        for role_id, kind in kinds.items():
            memory = AgentMemory(agent, role_id)
            await memory.record_episode(episode(1, role_id, text=f"A harbour episode of {role_id}."))
            lesson = insight(f"A harbour insight of {role_id}.", role_id, classification=kind)
            await inside(agent).stores.entries.add("novel", [lesson.draft(f"member:novel/{role_id}")])
        shared = {"cro": {"bdr"}} if isolation == "shared_read" else {}  # the insight of the CRO is confidential
        for role_id, facts in _ADMITTED.items():
            insights = {role_id} & kinds.keys() | shared.get(role_id, set())
            for way, told in (await read_everywhere(agent, lm, role_id)).items():
                if not way.startswith("insights"):
                    assert {word for _, word in _words() if f"harbour {word}." in told} == facts, (role_id, way)
                if not way.startswith("facts"):
                    assert {each for each in kinds if f"insight of {each}." in told} == insights, (role_id, way)
                assert {each for each in kinds if f"episode of {each}." in told} <= {role_id}, (role_id, way)


def _words() -> list[tuple[str, str]]:
    return [(text, text.removesuffix(".").rpartition(" ")[2]) for text, _, _ in _FACTS]


@pytest.mark.requirement("A1")
async def test_insights_of_others_can_be_read_and_not_changed(tmp_path: Path) -> None:
    async with society(tmp_path, memory_isolation="shared_read") as agent:
        await AgentMemory(agent, "bdr").store_insights([insight("Pilots close.", "bdr")])
        [made], entries, cro = (
            await agent.memory.list(account="member:novel/bdr"),
            inside(agent).stores.entries,
            await reader(agent, "cro"),
        )
        assert await entries.get(cro, [made.id]) == (made,)
        for attempt in (
            entries.forget("novel", [made.id], cro),
            entries.edit("novel", made.id, Change(text="x"), reader=cro),
        ):
            with pytest.raises(UnknownEntry):
                await attempt


@pytest.mark.requirement("A1")
async def test_a_member_that_is_gone_reads_what_is_public(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        await add_facts(agent)
        await agent.society.members.remove("novel", "bdr")
        assert texts(await AgentMemory(agent, "bdr").facts()) == ["The harbour fee."]


@pytest.mark.requirement("A11")
async def test_what_a_turn_recalled_drops_out_once_the_clearance_no_longer_admits_it(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        await add_facts(agent)
        recall = inside(agent).parts.engine.services.recall
        assert recall is not None
        found = await recall.find(await reader(agent, "cro"), "harbour price")
        assert "The harbour price." in texts(await recall.read(await reader(agent, "cro"), found))
        await agent.society.members.remove("novel", "cro")
        await agent.society.join(spec_of("cro"))
        assert "The harbour price." not in texts(await recall.read(await reader(agent, "cro"), found))


@pytest.mark.requirement("A11")
async def test_what_a_member_tells_everybody_is_classified_as_high_as_what_it_may_know(tmp_path: Path) -> None:
    rule = Rule(decision="approve", function="remember", times=9, after="message:*", arguments={"text": "*"})
    given: dict[str, Any] = {"memory": Memory(workspace_writes=True), "policy": Policy(rules=(rule,))}
    lm = acting(cro=("remember", {"text": "The harbour price is 7.", "everybody": True}))
    async with scripted_agent(tmp_path, lm, society=workspace_of(), **given) as agent:
        confidential = ClearanceProfile(domains={"revenue": "confidential"})
        await agent.society.join(replace(able("cro", "remember"), clearance=confidential))
        await agent.society.join(spec_of("bdr"))
        await agent.society.mail.send("root", "cro", "Tell all.")
        await Gateway(agent).deliver()
        [entry] = await agent.memory.list()
        assert (entry.text, entry.classification) == ("The harbour price is 7.", "confidential")
        assert await AgentMemory(agent, "bdr").recall("harbour") == ()


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A14")
async def test_values_are_kept_by_name_for_one_member(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        values = Values(AgentMemory(agent, "cro"))
        await values.set("tone", "calm")
        await values.set("tone", "brisk")
        await values.set("quarter", "Q1")
        assert (await values.get("tone"), await values.names()) == ("brisk", ("quarter", "tone"))
        assert await Values(AgentMemory(agent, "bdr")).get("tone", "none") == "none"
        await values.delete("tone")
        await values.delete("tone")
        assert (await values.get("tone"), await values.names()) == (None, ("quarter",))


@pytest.mark.requirement("A14")
async def test_memory_files_have_a_directory_in_each_folder(tmp_path: Path) -> None:
    async with society(tmp_path) as agent:
        memory = AgentMemory(agent, "cro")
        await memory.record_episode(episode(1))
        await memory.store_insights([insight("Pilots close sooner.\nSo offer one.")])
        files = MemoryFiles(memory)
        assert await files.list() == (".directory", "facts/", "insights/", "episodes/")
        assert await files.read(".directory") == "facts/: 0 facts\ninsights/: 1 insights\nepisodes/: 1 episodes"
        [_, name] = await files.list("insights")
        assert await files.read("insights/.directory") == f"{name}: Pilots close sooner. So offer one."
        assert await files.read(f"insights/{name}") == "Pilots close sooner.\nSo offer one."
        for path in ("insights/none.md", "souls/.directory", "souls/x", ""):
            with pytest.raises(InvalidArgument, match="there is no"):
                await files.read(path)
