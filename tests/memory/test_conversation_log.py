"""The conversation log: chains, forks, pages, summaries, repeats, and what it refuses."""

import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldagent.core import Clock
from worldagent.core.errors import InvalidArgument, UnknownMessage
from worldagent.memory import CONVERSATION, ConversationLog, Draft, Message
from worldagent.memory import log as log_module
from worldagent.memory.log import _ANCESTOR
from worldagent.storage import Database

NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


class Watch:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.looks = -1

    def now(self) -> datetime:
        self.looks += 1
        return NOON + timedelta(seconds=self.looks)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


@contextlib.asynccontextmanager
async def opened(path: Path, clock: Clock | None = None) -> AsyncGenerator[ConversationLog]:
    async with contextlib.aclosing(await Database.open(path, schemas=[CONVERSATION])) as database:
        yield ConversationLog(database, clock)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[ConversationLog]:
    async with opened(tmp_path / "agent.db") as fresh:
        yield fresh


def said(text: str, author: str = "ana") -> Draft:
    return Draft(author, "message", {"text": text})


async def test_a_turn_is_appended_as_one_and_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    async with opened(path, Watch()) as log:
        first = await log.append(None, [said("hello")], thread="t", turn_id="turn_1")
        answer = Draft("agent", "answer", {"text": "hi", "sources": [1, 2.5, None, {"ü": True}]})
        head = await log.append(first, [Draft("agent", "plan", {}), answer], thread="t", turn_id="turn_1")
    async with opened(path) as log:
        hello, plan, hi = await log.history(head)
    assert hello == Message(
        id=first,
        parent=None,
        depth=0,
        turn_id="turn_1",
        author="ana",
        kind="message",
        body={"text": "hello"},
        at=NOON,
    )
    assert (plan.parent, plan.depth, plan.kind, plan.body) == (first, 1, "plan", {})
    assert hi == Message(
        id=head,
        parent=plan.id,
        depth=2,
        turn_id="turn_1",
        author="agent",
        kind="answer",
        body=answer.body,
        at=NOON + timedelta(seconds=1),
    )


async def test_an_empty_conversation_has_an_empty_history(log: ConversationLog) -> None:
    assert await log.history(None) == ()
    with pytest.raises(UnknownMessage, match="'gone' is unknown: the conversation is empty"):
        await log.history(None, before="gone")


DRAFT: Any = Draft  # for arguments of wrong types


@pytest.mark.parametrize(
    ("drafts", "says"),
    [
        ([], "`messages` must not be empty"),
        ([DRAFT("ana", "whisper", {})], r"`messages\[0\]\.kind` must be a kind"),
        ([said("hi"), Draft("ana", "message", {"text": object()})], r"`messages\[1\]\.body` must be a JSON object"),
    ],
)
async def test_invalid_draft_is_refused(log: ConversationLog, drafts: list[Draft], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        await log.append(None, drafts, thread="t", turn_id="turn_1")


async def test_half_a_surrogate_pair_from_a_model_comes_back_as_it_was(log: ConversationLog) -> None:
    odd = 'half \ud83d, "quoted \udc00", back\\\ud800, nul \x00'
    head = await log.append(None, [Draft("ana", "answer", {odd: [odd]})], thread="t", turn_id="turn_1")
    [message] = await log.history(head)
    assert message.body == {odd: [odd]}


# --- against a model -------------------------------------------------------------------------------------------------

JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
BODIES = st.dictionaries(JSON_TEXT, JSON_TEXT | st.integers() | st.booleans() | st.none(), max_size=2)
DRAFTS = st.builds(Draft, st.sampled_from(["ana", "bob"]), st.sampled_from(["message", "answer"]), BODIES)
APPENDS = st.tuples(
    st.integers(0, 30), st.lists(DRAFTS, min_size=1, max_size=4), st.sampled_from("st"), st.sampled_from("12")
)
PAGES = st.tuples(st.integers(0, 30), st.none() | st.integers(0, 30), st.integers(1, 12))
Content = tuple[str, str, Mapping[str, Any], str]


@given(st.lists(APPENDS, max_size=15), st.lists(PAGES, max_size=8))
async def test_any_appends_forks_and_pages_equal_a_plain_model(
    appends: list[tuple[int, list[Draft], str, str]], pages: list[tuple[int, int | None, int]]
) -> None:
    chains: dict[str | None, list[str]] = {None: []}  # each id, with the ids that lead to it
    contents: dict[str, Content] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder) / "agent.db") as log:
            for place, drafts, thread, turn in appends:
                parent = list(chains)[place % len(chains)]
                head = await log.append(parent, drafts, thread=thread, turn_id=turn)
                stored = await log.history(head, limit=1000)
                assert [message.id for message in stored[: -len(drafts)]] == chains[parent]
                for number, (draft, message) in enumerate(zip(drafts, stored[-len(drafts) :], strict=True)):
                    content = (draft.author, draft.kind, draft.body, turn)
                    assert (message.author, message.kind, message.body, message.turn_id) == content
                    assert message.depth == len(chains[parent]) + number
                    assert contents.setdefault(message.id, content) == content
                    chains[message.id] = [*chains[message.parent], message.id]
            await _compare_pages(log, chains, pages)


async def _compare_pages(
    log: ConversationLog, chains: dict[str | None, list[str]], pages: list[tuple[int, int | None, int]]
) -> None:
    ids = list(chains)
    for place, before_place, limit in pages:
        head = ids[place % len(ids)]
        before = None if before_place is None else ids[before_place % len(ids)]
        expected = chains[head]
        if before is not None and before not in expected:
            with pytest.raises(UnknownMessage):
                await log.history(head, before=before, limit=limit)
            continue
        expected = expected[: expected.index(before)] if before is not None else expected
        assert [message.id for message in await log.history(head, before=before, limit=limit)] == expected[-limit:]


async def test_the_page_of_a_turn_ends_with_its_last_message_and_is_found_without_looking_through_the_others(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "agent.db") as log:
        head = None
        for turn in range(3):
            drafts = [said(f"{turn}.{place}") for place in range(4)]
            head = await log.append(head, drafts, thread="w/t", turn_id=f"turn_{turn}")
            await log.append(None, drafts, thread="w/other", turn_id=f"turn_{turn}")
        found = await log.of_turn("w/t", "turn_1", limit=3)
        assert [message.body["text"] for message in found] == ["1.1", "1.2", "1.3"]
        assert await log.of_turn("w/t", "turn_7") == ()
    with contextlib.closing(sqlite3.connect(tmp_path / "agent.db")) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {log_module._LAST}", ("w/t", "turn_1")).fetchall()
    assert "USING INDEX wa_message_thread (thread=? AND turn=?)" in plan[0][3]


def draft(number: int, *, summary: bool) -> Draft:
    return Draft("ana", "summary" if summary else "message", {"text": str(number)})


# Where each message goes: how far back from the newest its parent stands, and whether it is a summary.
TREES = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40)


@given(tree=TREES, together=st.booleans())
async def test_summaries_and_members_of_any_tree_are_those_of_a_walk(
    tree: list[tuple[int, bool]], together: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder) / "agent.db") as log:
            ids: list[str] = []
            for number, (back, summary) in enumerate(tree):
                parent = ids[-1 - back] if back < len(ids) else None
                drafts = [draft(number, summary=summary)]
                if together:  # two at once, the first of which may be a summary
                    drafts.append(draft(-number - 1, summary=False))
                ids.append(await log.append(parent, drafts, thread=f"t{number}", turn_id=f"turn_{number}"))
            for head in ids[-5:]:
                chain = await log.history(head, limit=1000)
                summaries = [message for message in chain if message.kind == "summary"]
                assert (await log.tail(head, limit=1)).summary == (summaries[-1] if summaries else None)
                members = {message.id for message in chain}
                assert [each.id for each in await log.some(head, ids)] == [
                    each.id for each in chain if each.id in set(ids)
                ]
                for message_id in ids:
                    if message_id in members:
                        [at] = [place for place, each in enumerate(chain) if each.id == message_id]
                        assert (await log.history(head, before=message_id, limit=1000)) == chain[:at]


async def test_a_message_far_back_is_found_over_the_summaries(tmp_path: Path) -> None:
    async with opened(tmp_path / "agent.db") as log:
        head = None
        for block in range(110):
            drafts = [draft(block * 10 + number, summary=number == 9) for number in range(10)]
            head = await log.append(head, drafts, thread="t", turn_id=f"turn_{block}")
        assert head is not None
        first = (await log.history(head, before=None, limit=1000))[0].id
        assert [message.id for message in await log.some(head, [first])] == [first]
        before = _steps(tmp_path / "agent.db", head, 100)
        assert before < 130, "it walked from message to message, not over the hundred summaries between"


def _steps(path: Path, head: str, depth: int) -> int:
    """How many messages the search for an ancestor reads."""
    statement = _ANCESTOR.rpartition("SELECT")[0] + "SELECT COUNT(*) FROM chain"
    with contextlib.closing(sqlite3.connect(path)) as file:
        [[steps]] = file.execute(statement, (head, depth, depth))
    return int(steps)
