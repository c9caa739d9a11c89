"""Memory entries in the database: who sees them, how they are found, edited and forgotten (M1, M3, M4)."""

import asyncio
import random
import string
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.databases import ENGINES, Engine, fresh
from support.memory_tables import replace_entry
from worldagent.core.errors import EntryChanged, InvalidArgument, UnknownEntry
from worldagent.memory.entries import ENTRIES, Change, Draft, Entries, EntryFilter, Reader, Source
from worldagent.memory.entries.words import question_words, words_of
from worldagent.storage import Database
from worldagent.testing import VirtualClock

WEST = timezone(timedelta(hours=-1))
ANA, BOB, ALL = (Reader(workspace="w", account=account) for account in ("ana", "bob", None))


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    engine: Engine = request.param
    opened = await Database.open(fresh(engine, tmp_path), schemas=[ENTRIES])
    yield opened
    await opened.aclose()


@pytest.fixture
def entries(database: Database) -> Entries:
    return Entries(database)


def texts(found: Any) -> list[str]:
    return [each.text if hasattr(each, "text") else each[0].text for each in found]


@pytest.mark.requirement("M3")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Die Straße in MÜNCHEN, 3 Häuser_x", ["die", "strasse", "in", "munchen", "3", "hauser", "x"]),
        ("我喜欢苹果", ["我喜", "喜欢", "欢苹", "苹果"]),
        ("東 abc漢字", ["東", "abc", "漢字"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("ﬁne \uff21\uff11 don't", ["fine", "a1", "don", "t"]),
        ("  \t!? ", []),
    ],
)
def test_texts_are_cut_into_the_same_words_everywhere(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.requirement("M3")
@pytest.mark.parametrize(
    ("question", "words"),
    [
        *((word, [word.casefold()]) for word in ("son", "war", "US", "it", "May", "MIT", "Los", "pour", "par", "die")),
        ("What is the name of her son?", ["name", "son"]),
        ("Tell me about the war that may die.", ["war", "die"]),
        ("Does she work in the US, in IT or at MIT?", ["work", "us", "it", "mit"]),
        ("When do we meet in May?", ["meet", "may"]),
        ("May I eat it?", ["eat"]),
        ("Was war mit dem Hund?", ["hund"]),
        ("Wissen Sie, wo ihr Hund ist?", ["wissen", "hund"]),
        ("O\u00f9 est son chien, et pour qui?", ["chien"]),
        ("\u00bfD\u00f3nde est\u00e1 la casa de Los Pinos?", ["casa", "los", "pinos"]),
        ("WHO ARE YOU?", []),
        ("Ask the clerk.", ["ask", "clerk"]),
        ("Los Angeles", ["los", "angeles"]),
    ],
)
def test_words_are_left_out_of_a_question_of_their_own_language_alone(question: str, words: list[str]) -> None:
    assert question_words(question) == words


@pytest.mark.requirement("M3")
async def test_a_word_that_is_empty_in_another_language_finds_its_entry(entries: Entries) -> None:
    told = "Ana's son is called Tom, he studies IT at MIT since May, and lives in Los Angeles in the US."
    [entry, _] = await entries.add("w", [Draft(text=told, account="ana"), Draft(text="A war is near.", account="ana")])
    reader = Reader(workspace="w", account="ana")
    for question in ("son", "Who is her son?", "the US", "IT", "In May?", "MIT", "Los"):
        assert (await entries.search(reader, question))[0][0].id == entry.id, question
    assert [each.text for each, _ in await entries.search(reader, "Tell me about the war")] == ["A war is near."]


@pytest.mark.requirement("M1")
async def test_an_entry_comes_back_as_it_was_written(entries: Entries) -> None:
    expires = datetime(2031, 1, 2, tzinfo=UTC)
    draft = Draft(
        text="Ana eats no nuts 🥜",
        account="ana",
        kind="fact",
        tags=("health", "food", "food"),
        source=Source(by="model", thread="t", turn="turn_1"),
        untrusted=("web_fetch",),
        classification="secret",
        domain="medical",
        confidence=0.5,
        expires=expires,
    )
    [made] = await entries.add("w", [draft])
    [entry] = await entries.get(ANA, [made.id])
    assert entry == made
    assert (entry.text, entry.account, entry.kind, entry.tags) == (draft.text, "ana", "fact", ("food", "health"))
    assert (entry.source, entry.untrusted, entry.domain) == (draft.source, ("web_fetch",), "medical")
    assert (entry.classification, entry.confidence, entry.expires, entry.version) == ("secret", 0.5, expires, 1)
    assert entry.to_json()["source"] == {"by": "model", "thread": "t", "turn": "turn_1"}


@pytest.mark.requirement("M4")
async def test_each_account_sees_its_own_entries_and_those_of_the_workspace(entries: Entries) -> None:
    await entries.add("w", [Draft(text="the harbour opens at six")])
    [own] = await entries.add("w", [Draft(text="the harbour pass of Ana", account="ana")])
    await entries.add("other", [Draft(text="the harbour elsewhere")])
    hidden = Reader(workspace="w", account="ana", clearance="public")
    assert texts(await entries.search(ANA, "harbour pass")) == ["the harbour pass of Ana", "the harbour opens at six"]
    assert texts(await entries.search(BOB, "harbour pass")) == ["the harbour opens at six"]
    assert texts(await entries.list(ALL)) == ["the harbour opens at six"]
    assert texts(await entries.search(hidden, "harbour")) == ["the harbour pass of Ana"]
    assert await entries.get(BOB, [own.id]) == ()
    for attempt in (entries.forget("w", [own.id], BOB), entries.edit("w", own.id, Change(text="x"), reader=BOB)):
        with pytest.raises(UnknownEntry, match=r"there is no memory entry 'mem_.*' here; list"):
            await attempt


@pytest.mark.requirement("M3")
async def test_what_others_have_changes_no_score(entries: Entries) -> None:
    await entries.add("w", [Draft(text="red boat"), Draft(text="blue boat", account="ana")])
    before = await entries.search(ANA, "red boat")
    await entries.add("w", [Draft(text="red red boat", account="bob")] * 5)
    await entries.add("x", [Draft(text="red boat")])
    assert await entries.search(ANA, "red boat") == before


@pytest.mark.requirement("M3")
async def test_both_databases_rank_alike(tmp_path: Path) -> None:
    source = random.Random(7)
    vocabulary = ["".join(source.choices(string.ascii_lowercase, k=3)) for _ in range(60)]
    drafts = [
        Draft(text=" ".join(source.choices(vocabulary, k=source.randint(1, 9))), key=str(number), account=account)
        for number in range(300)
        for account in [source.choice(["ana", "bob", None])]
    ]
    questions = [" ".join(source.choices(vocabulary, k=4)) for _ in range(40)]
    found = []
    for engine in ENGINES:
        database = await Database.open(fresh(engine, tmp_path), schemas=[ENTRIES])
        entries = Entries(database)
        await entries.add("w", drafts)
        ranks = [await entries.search(ANA, question, limit=50) for question in questions]
        found.append([[(entry.id, score) for entry, score in rank] for rank in ranks])
        await database.aclose()
    assert found[0] == found[1]
    assert all(found[0])


@pytest.mark.requirement("M3")
async def test_scores_count_what_is_left_after_concurrent_writes_and_deletions(entries: Entries) -> None:
    accounts = ("ana", "bob", None)
    drafts = [Draft(text=f"boat {'red ' * size}{size}", account=account) for size in range(4) for account in accounts]
    made = await asyncio.gather(entries.add("w", drafts), entries.add("w", drafts[::-1]))
    await replace_entry(entries, "w", made[0][0].id, made[0][3].id)
    await entries.edit("w", made[0][1].id, Change(text="no such thing"))
    await asyncio.gather(*(entries.forget("w", [each.id for each in some[:6]]) for some in made))
    left = [Draft(text=each.text, account=each.account) for some in made for each in some[6:]]
    await entries.add("x", left)
    for account in accounts:
        found = [await entries.search(Reader(workspace=name, account=account), "red boat 2") for name in ("w", "x")]
        first, second = [sorted((entry.text, score) for entry, score in each) for each in found]
        assert first == second != []


@pytest.mark.requirement("M3")
async def test_words_that_very_many_entries_have_count_only_if_no_rarer_one_is_asked(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldagent.memory.entries.index.MAX_POSTINGS", 5)
    texts_of = [f"boat {'red' if number == 7 else number}" for number in range(8)]
    await entries.add("w", [Draft(text=text, key=text) for text in texts_of])
    assert texts(await entries.search(ALL, "red boat")) == ["boat red"]
    found = await entries.search(ALL, "boat")
    assert len(found) == 5
    assert {each.id for each, _ in found} == {*sorted(each.id for each in await entries.list(ALL))[:5]}


@pytest.mark.requirement("M4")
async def test_an_edit_changes_what_is_found_and_two_edits_of_one_version_do_not_both_count(entries: Entries) -> None:
    [made] = await entries.add("w", [Draft(text="Ana lives in Bonn", account="ana")])
    edited = await entries.edit("w", made.id, Change(text="Ana lives in Ulm", tags=("home",)), version=1)
    assert (edited.text, edited.version, edited.tags) == ("Ana lives in Ulm", 2, ("home",))
    assert texts(await entries.search(ANA, "Ulm")) == ["Ana lives in Ulm"]
    assert await entries.search(ANA, "Bonn") == ()
    with pytest.raises(EntryChanged, match="has version 2, and the edit is of version 1; read it again"):
        await entries.edit("w", made.id, Change(text="x"), version=1)
    with pytest.raises(InvalidArgument, match="must be from 1970 to 9999 in UTC"):
        await entries.edit("w", made.id, Change(expires=datetime.max.replace(tzinfo=WEST)))
    until = datetime(2031, 1, 2, tzinfo=UTC)
    kept = [await entries.edit("w", made.id, Change(expires=each)) for each in (until, None, "never")]
    assert [each.expires for each in kept] == [until, until, None]
    both = await asyncio.gather(
        *(entries.edit("w", made.id, Change(text=text), version=5) for text in "ab"), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in both) == ["Entry", "EntryChanged"]


@pytest.mark.requirement("M4")
async def test_what_is_forgotten_is_in_no_table(entries: Entries, database: Database) -> None:
    [one, two] = await entries.add("w", [Draft(text="old boat", account="ana"), Draft(text="new boat", account="ana")])
    await replace_entry(entries, "w", one.id, two.id)
    assert texts(await entries.search(ANA, "boat")) == ["new boat"]
    assert texts(await entries.list(ANA, replaced=True)) != texts(await entries.list(ANA)) == ["new boat"]
    with pytest.raises(UnknownEntry):
        await entries.forget("w", [two.id, "mem_0000000000000000"])
    assert await entries.forget("w", [two.id]) == 1
    assert texts(await entries.search(ANA, "boat")) == ["old boat"]  # what it had replaced counts again
    await entries.forget("w", [one.id])
    for table in ("wa_entry", "wa_entry_word", "wa_entry_count"):
        counted = await database.read(lambda tx, table=table: tx.execute(f"SELECT COUNT(*) FROM {table}"))  # type: ignore[misc]
        assert counted == [(0,)]


@pytest.mark.requirement("M1")
async def test_the_newest_of_three_that_contradict_counts_after_the_middle_is_forgotten(entries: Entries) -> None:
    drafts = [Draft(text=f"Ana lives in {town}") for town in ("Bonn", "Ulm", "Kiel")]
    one, two, three = await entries.add("w", drafts)
    await replace_entry(entries, "w", one.id, two.id)
    await replace_entry(entries, "w", two.id, three.id)
    await entries.forget("w", [two.id])
    assert texts(await entries.search(ALL, "lives")) == ["Ana lives in Kiel"]
    [older] = await entries.get(ALL, [one.id])
    assert older.replaced_by == three.id
    await entries.forget("w", [three.id])
    assert texts(await entries.search(ALL, "lives")) == ["Ana lives in Bonn"]


@pytest.mark.requirement("M4")
async def test_an_entry_whose_time_is_over_is_not_found_and_then_deleted(database: Database) -> None:
    clock = VirtualClock()
    entries = Entries(database, clock)
    soon = clock.now() + timedelta(hours=1)
    made = await entries.add("w", [Draft(text="boat today", expires=soon), Draft(text="boat for ever")])
    assert len(await entries.search(ALL, "boat")) == 2
    await clock.advance(3600)
    assert texts(await entries.search(ALL, "boat")) == texts(await entries.list(ALL)) == ["boat for ever"]
    assert await entries.get(ALL, [made[0].id]) == ()
    await entries.add("w", [Draft(text=f"old boat {number}", expires=clock.now()) for number in range(450)])
    assert (await entries.forget_expired(), await entries.forget_expired()) == (451, 0)


@pytest.mark.requirement("M1")
async def test_a_key_makes_writing_again_harmless(entries: Entries) -> None:
    [one] = await entries.add("w", [Draft(text="first", key="k")])
    [again] = await entries.add("w", [Draft(text="second", key="k")])
    [other] = await entries.add("x", [Draft(text="second", key="k")])
    assert again == one != other
    [ana, bob] = await entries.add("w", [Draft(text="hi", key="k", account=account) for account in ("ana", "bob")])
    assert (ana.account, bob.account, len({one.id, ana.id, bob.id})) == ("ana", "bob", 3)


@pytest.mark.requirement("M4")
async def test_lists_are_paged_and_filtered(entries: Entries) -> None:
    drafts = [Draft(text=str(number), tags=("odd",) if number % 2 else (), account="ana") for number in range(450)]
    await entries.add("w", drafts)
    first = await entries.list(ANA, limit=300)
    rest = await entries.list(ANA, limit=300, before=first[-1])
    assert {*texts(first), *texts(rest)} == {str(number) for number in range(450)}
    assert len(await entries.list(ANA, EntryFilter(tags=("odd",)), limit=1000)) == 225
    assert await entries.list(ANA, EntryFilter(kind="fact")) == ()


@pytest.mark.requirement("M1")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"text": " "}, "must be a text that UTF-8 can encode and not blank; pass a text"),
        ({"text": "x" * 4001}, "has 4,001 characters, and at most 4,000 are allowed; split it"),
        ({"text": "\ud800"}, "UTF-8 can encode"),
        ({"text": "x", "tags": "travel"}, r"`tags` must be up to 20 texts .*; pass a list"),
        ({"text": "x", "tags": ["a\n"]}, "`tags` must be"),
        ({"text": "x", "kind": "rule"}, "`kind` must be one of 'entry', 'fact'"),
        ({"text": "x", "classification": "top"}, "`classification` must be one of"),
        ({"text": "x", "confidence": 2}, "`confidence` must be a number from 0 to 1"),
        ({"text": "x", "expires": datetime(2030, 1, 1)}, "`expires` must be a datetime with a time zone"),
        ({"text": "x", "expires": datetime(1969, 12, 31, tzinfo=UTC)}, "`expires` must be from 1970 to 9999"),
        ({"text": "x", "expires": datetime.max.replace(tzinfo=WEST)}, "`expires` must be from 1970 to 9999"),
        ({"text": "x", "account": ""}, "account"),
        ({"text": "x", "tags": 5}, "`tags` must be"),
        ({"text": "x", "domain": "\0"}, "domain"),
        ({"text": None}, "the text of an entry must be"),
        ({"text": b"bytes"}, "the text of an entry must be"),
        ({"text": "a\0b"}, "the text of an entry must be"),
        ({"text": "x", "tags": ["x"] * 10_000}, "`tags` must be"),
        ({"text": "x", "tags": map(str, range(10_000))}, "`tags` must be"),
        ({"text": "x", "tags": [""]}, "`tags` must be"),
        ({"text": "x", "tags": ["\ud800"]}, "`tags` must be"),
        ({"text": "x", "tags": ["x" * 61]}, "`tags` must be"),
        ({"text": "x", "tags": None}, "`tags` must be"),
        ({"text": "x", "account": "\ud800"}, "account"),
        ({"text": "x", "account": "x" * 10_000}, "account"),
        ({"text": "x", "key": 5}, "`key` must be a text"),
        ({"text": "x", "key": "\ud800"}, "`key` must be a text"),
        ({"text": "x", "kind": ["fact"]}, "`kind` must be one of"),
    ],
)
def test_an_invalid_entry_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{problem}.*") as caught:
        Draft(**given)
    assert len(str(caught.value)) < 500


@pytest.mark.requirement("M4")
async def test_pruning_deletes_expired_entries(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering()) as agent:
        entries = agent._runner.parts.stores.entries
        await entries.add("w", [Draft(text="an old boat", expires=datetime(2000, 1, 1, tzinfo=UTC))])
        await agent.upkeep.prune()
        assert await entries.forget_expired() == 0
        assert b"an old boat" not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
