"""A thousand accounts with equal texts and equal keys: none gets an entry of another, by any call (M4)."""

import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import calls, scripted_agent
from worldagent import Memory, Policy, Rule, WorldAgent
from worldagent.core.errors import UnknownEntry
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("M4"), pytest.mark.on_every_database(soak=True)]

# Ids that are easily mixed up: with spaces, signs, another case, and beginnings of each other.
NAMES = ["1", "10", "100", "Ana", "ana", "ana ben", "ana/ben", "ana:ben", "ana,ben", "*", "%", "novel", "null", "'; --"]
ACCOUNTS = [*NAMES, *(f"account {number}" for number in range(1000))][:1000]
SAMPLE = [*ACCOUNTS[:12], *random.Random("sample of accounts").sample(ACCOUNTS, 12)]
BOAT = "The boat is red."
FREE = Policy(rules=(Rule(decision="approve", function="recall"),))


def number_of(account: str) -> str:
    """A text that only one account has."""
    return f"The number is {random.Random(f'number of {account}').randint(10**11, 10**12)}."


def asking(call: ScriptedCall) -> dict[str, Any]:
    """Searches for all it can, then answers with what it found and was shown."""
    if call.steps:
        return {"reply": f"{call.steps} {call.fields['memory']}"}
    return {"reply": "", **calls(("recall", {"text": "boat number red"}))}


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncGenerator[WorldAgent]:
    """An agent whose accounts each have two entries, with the same two keys."""
    lines = [
        {"id": key, "text": text, "account": account}
        for account in ACCOUNTS
        for key, text in (("boat", BOAT), ("number", number_of(account)))
    ]
    random.Random("order of entries").shuffle(lines)
    async with scripted_agent(tmp_path, ScriptedLM(asking), memory=Memory(limit=100), policy=FREE) as opened:
        assert await opened.memory.import_lines(lines) == len(lines)
        yield opened


async def test_of_a_thousand_accounts_each_reads_its_own_entries_alone(agent: WorldAgent) -> None:
    memory, ids = agent.memory, set[str]()
    for account in ACCOUNTS:
        entries = await memory.list(account=account, limit=1000)
        assert {(entry.account, entry.text) for entry in entries} == {(account, BOAT), (account, number_of(account))}
        ids |= {entry.id for entry in entries}
    assert len(ids) == 2 * len(ACCOUNTS) == 2000
    assert await memory.list() == ()
    scores = set()
    for account in SAMPLE:
        found = await memory.search("red boat number", account=account, limit=100)
        assert {entry.account for entry, _ in found} == {account}
        scores.add(tuple(score for _, score in found))
        exported = [line async for line in memory.export(account=account)]
        assert {line["text"] for line in exported} == {BOAT, number_of(account)}
    assert len(scores) == 1  # what others have changes no score


async def test_of_a_thousand_accounts_no_call_reaches_an_entry_of_another(agent: WorldAgent) -> None:
    memory = agent.memory
    for account, other in zip(SAMPLE, [*SAMPLE[1:], SAMPLE[0]], strict=True):
        if account == other:
            continue
        mine, theirs = await memory.list(account=account), await memory.list(account=other)
        for entry in theirs:
            assert await memory.get(entry.id, account=account) is None
            assert await memory.get(entry.id) is None
            for attempt in (
                memory.edit(entry.id, "Changed.", account=account),
                memory.forget(mine[0].id, entry.id, account=account),
                memory.forget(entry.id),
            ):
                with pytest.raises(UnknownEntry):
                    await attempt
        assert await memory.list(account=other, before=mine[-1]) in (theirs, theirs[1:], ())
        assert (await memory.list(account=account), await memory.list(account=other)) == (mine, theirs)
    kept = await memory.list(account=SAMPLE[0])
    assert await memory.forget_all(account=SAMPLE[1]) == 2
    assert (await memory.list(account=SAMPLE[1]), await memory.list(account=SAMPLE[0])) == ((), kept)


async def test_of_a_thousand_accounts_a_turn_is_shown_its_own_entries_alone(agent: WorldAgent) -> None:
    for place, account in enumerate(SAMPLE):
        turn = await agent.thread(f"t{place}", account=account).converse("Which boat, and which number?")
        assert {*turn.recalled} == {entry.id for entry in await agent.memory.list(account=account)}
        assert turn.text.count(number_of(account)) == 2  # recalled for the turn, and found by the call
        assert turn.text.count("The number is") == 2
    nobody = await agent.thread("without").converse("Which boat, and which number?")
    assert (nobody.recalled, "The number is" in nobody.text) == ((), False)
