"""Memory entries in a store of the host's: what it gives is used, and what it must not give is refused (M4)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls, scripted_agent
from worldagent import Memory, Policy, Rule
from worldagent.core.errors import MemorySourceFailed, TurnTimeout, UnknownEntry
from worldagent.memory.entries import Change, Draft, Entry, EntryFilter, Reader, Source
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("M4")

FREE = Policy(rules=tuple(Rule(decision="approve", function=name) for name in ("remember", "recall")))
NOW = datetime(2026, 5, 1, tzinfo=UTC)
Broken = Callable[[Any], Any]


class Shelf:
    """A store of the host's that keeps entries in a list; `broken` changes what each of its methods returns."""

    def __init__(self, broken: Broken | None = None) -> None:
        self.entries: list[Entry] = []
        self._broken = broken or (lambda found: found)

    def _seen(self, reader: Reader) -> list[Entry]:
        return [entry for entry in self.entries if entry.account in (None, reader.account)]

    async def search(self, reader: Reader, text: str, /, *, limit: int = 10) -> Sequence[tuple[Entry, float]]:
        words = set(text.lower().split())
        found = [(entry, 1.0) for entry in self._seen(reader) if words & set(entry.text.lower().split())]
        return self._broken(found)  # type: ignore[no-any-return]  # it can be anything, which is the subject

    async def get(self, reader: Reader, ids: Sequence[str], /) -> Sequence[Entry]:
        return self._broken([entry for entry in self._seen(reader) if entry.id in ids])  # type: ignore[no-any-return]  # as above

    async def list(
        self,
        reader: Reader,
        wanted: EntryFilter,
        /,
        *,
        limit: int = 100,
        before: Entry | None = None,
        replaced: bool = False,
    ) -> Sequence[Entry]:
        found = [entry for entry in self._seen(reader)[::-1] if wanted.matches(entry)]
        after = found.index(before) + 1 if before in found else 0
        return self._broken(found[after : after + limit])  # type: ignore[no-any-return]  # as above

    async def add(self, workspace: str, drafts: Sequence[Draft], /) -> Sequence[Entry]:
        return self._broken([self.put(draft.text, draft.account) for draft in drafts])  # type: ignore[no-any-return]  # as above

    async def edit(
        self,
        workspace: str,
        entry_id: str,
        change: Change,
        /,
        *,
        version: int | None = None,
        reader: Reader | None = None,
    ) -> Entry:
        [place] = [place for place, entry in enumerate(self.entries) if entry.id == entry_id]
        self.entries[place] = replace(self.entries[place], text=change.text or "", version=2)
        return self._broken(self.entries[place])  # type: ignore[no-any-return]  # as above

    async def forget(self, workspace: str, ids: Sequence[str], reader: Reader | None = None, /) -> int:
        if not set(ids) <= {entry.id for entry in self.entries}:
            raise UnknownEntry("there is none", remedy="list them")
        self.entries = [entry for entry in self.entries if entry.id not in ids]
        return self._broken(len(ids))  # type: ignore[no-any-return]  # as above

    def put(self, text: str, account: str | None) -> Entry:
        self.entries.append(made(f"own-{len(self.entries)}", text, account))
        return self.entries[-1]


def made(name: str, text: str, account: str | None) -> Entry:
    return Entry(
        id=name,
        version=1,
        text=text,
        account=account,
        kind="entry",
        tags=(),
        source=Source(),
        untrusted=(),
        classification="internal",
        domain="",
        confidence=1.0,
        created=NOW,
        changed=NOW,
        expires=None,
        replaced_by=None,
    )


def fail(found: Any) -> Any:
    raise RuntimeError("the password is swordfish")


async def test_a_store_of_the_hosts_has_all_the_entries(tmp_path: Path) -> None:
    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": "Done."} if call.steps else {"reply": "", **calls(("remember", {"text": "Ana sings."}))}

    shelf, lm = Shelf(), ScriptedLM(reply)
    async with scripted_agent(tmp_path, lm, memory=Memory(source=shelf), policy=FREE) as agent:
        nuts = await agent.memory.add("Ana eats no nuts", account="ana")
        await agent.memory.add("Bob eats nuts", account="bob")
        turn = await agent.thread("t", account="ana").converse("nuts")
        assert (turn.recalled, "Bob" in lm.calls[0].text) == ((nuts.id,), False)
        assert [entry.text for entry in await agent.memory.list(account="ana")] == ["Ana sings.", "Ana eats no nuts"]
        assert len([line async for line in agent.memory.export(account="ana")]) == 2
        assert (await agent.memory.edit(nuts.id, "Ana eats nuts", account="ana")).version == 2
        with pytest.raises(UnknownEntry):
            await agent.memory.forget("none", account="ana")
        assert await agent.memory.forget_all(account="ana") == 2
        assert [entry.account for entry in shelf.entries] == ["bob"]


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (fail, "failed with RuntimeError; mend"),
        (lambda found: None, "returned something else"),
        (lambda found: [1, 2], "returned"),
        (lambda found: [(made("x", "nuts of Bob", "bob"), 1.0)], "returned"),
        (lambda found: [made("x", "nuts of Bob", "bob")], "returned"),
        (lambda found: [(made("x", "nuts \ud800", "ana"), 1.0)], "returned something else"),
    ],
)
async def test_what_a_store_must_not_do_fails_the_call_and_the_turn(
    tmp_path: Path, broken: Broken, problem: str
) -> None:
    lm, shelf = answering(), Shelf(broken)
    shelf.put("no nuts", "ana")
    async with scripted_agent(tmp_path, lm, memory=Memory(source=shelf)) as agent:
        memory = agent.memory
        for attempt in (
            agent.thread("t", account="ana").converse("nuts"),
            *(memory.search("nuts", account="ana"), memory.add("x", account="ana"), memory.list(account="ana")),
            *(memory.get("own-0", account="ana"), memory.edit("own-0", "x", account="ana")),
            *(memory.forget_all(account="ana"), memory.forget("own-0", account="ana")),
        ):
            with pytest.raises(MemorySourceFailed, match=f"the memory source 'Shelf' .*{problem}") as caught:
                await attempt
            assert "swordfish" not in str(caught.value)
            assert "nuts" not in str(caught.value)
    assert lm.calls == []


async def test_more_than_was_asked_for_is_left_out_and_a_list_without_end_is_refused(tmp_path: Path) -> None:
    lm, shelf = answering(), Shelf()
    for place in range(20):
        shelf.put(f"nuts {place}", "ana")
    async with scripted_agent(tmp_path, lm, memory=Memory(source=shelf, limit=3)) as agent:
        assert len((await agent.thread("t", account="ana").converse("nuts")).recalled) == 3
    endless = Shelf(lambda found: [made("x", "again", "ana")])
    async with scripted_agent(tmp_path, lm, memory=Memory(source=endless)) as agent:
        with pytest.raises(MemorySourceFailed, match="listed an entry again"):
            await agent.memory.forget_all(account="ana")


class Slow(Shelf):
    """A store whose searches take until they may end; `asked` is set once one has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def search(self, reader: Reader, text: str, /, *, limit: int = 10) -> Sequence[tuple[Entry, float]]:
        self.asked.set()
        await self.may.wait()
        return await super().search(reader, text, limit=limit)


@pytest.mark.requirement("M2")
async def test_a_turn_that_waits_for_a_slow_store_can_be_cancelled(tmp_path: Path) -> None:
    shelf, lm = Slow(), answering()
    nuts = shelf.put("no nuts", "ana")
    async with scripted_agent(tmp_path, lm, memory=Memory(source=shelf)) as agent:
        thread = agent.thread("t", account="ana")
        running = asyncio.create_task(thread.converse("nuts"))
        await asyncio.wait_for(shelf.asked.wait(), 30)
        assert await thread.cancel()
        assert (await asyncio.wait_for(running, 30)).status == "cancelled"
        shelf.may.set()
        assert (await thread.converse("nuts")).recalled == (nuts.id,)
    assert len(lm.calls) == 1


@pytest.mark.requirement("M2")
async def test_turn_timeout_bounds_a_slow_store_and_the_turn_resumes(tmp_path: Path) -> None:
    shelf, lm, settings = Slow(), answering(), {"turn_timeout": 0.2}
    nuts = shelf.put("no nuts", "ana")
    async with scripted_agent(tmp_path, lm, memory=Memory(source=shelf), settings=settings) as agent:
        with pytest.raises(TurnTimeout):
            await asyncio.wait_for(agent.thread("t", account="ana").converse("nuts"), 30)
    assert lm.calls == []
    shelf.may.set()
    async with scripted_agent(tmp_path, lm, memory=Memory(source=shelf)) as agent:
        turn = await agent.thread("t", account="ana").resume()
    assert (turn.status, turn.recalled, "no nuts" in lm.calls[0].user) == ("done", (nuts.id,), True)


@pytest.mark.requirement("M2")
async def test_a_thread_goes_on_after_a_turn_that_a_store_failed(tmp_path: Path) -> None:
    down, lm = Shelf(fail), answering()
    async with scripted_agent(tmp_path, lm, memory=Memory(source=down)) as agent:
        with pytest.raises(MemorySourceFailed, match="failed with RuntimeError"):
            await agent.thread("t", account="ana").converse("nuts")
    up = Shelf()
    nuts = up.put("no nuts", "ana")
    async with scripted_agent(tmp_path, lm, memory=Memory(source=up)) as agent:
        turn = await agent.thread("t", account="ana").converse("nuts")
    assert (turn.status, turn.recalled) == ("done", (nuts.id,))
