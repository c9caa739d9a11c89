"""The newest summary before a message, and which messages stand in a conversation: found without a walk to them."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from worldagent.memory import CONVERSATION, ConversationLog, Draft
from worldagent.memory.log import _ANCESTOR
from worldagent.storage import Database


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Database]:
    async with contextlib.aclosing(await Database.open(path, schemas=[CONVERSATION])) as database:
        yield database


def draft(number: int, *, summary: bool) -> Draft:
    return Draft("ana", "summary" if summary else "message", {"text": str(number)})


# Where each message goes: how far back from the newest its parent stands, and whether it is a summary.
TREES = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40)


@given(tree=TREES, together=st.booleans())
async def test_summaries_and_members_of_any_tree_are_those_of_a_walk(
    tree: list[tuple[int, bool]], together: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder) / "agent.db") as database:
            log = ConversationLog(database)
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
                        before = await log.history(head, before=message_id, limit=1000)
                        assert before == chain[:at]


async def test_a_message_far_back_is_found_over_the_summaries(tmp_path: Path) -> None:
    async with opened(tmp_path / "agent.db") as database:
        log = ConversationLog(database)
        head = None
        for block in range(200):
            drafts = [draft(block * 10 + number, summary=number == 9) for number in range(10)]
            head = await log.append(head, drafts, thread="t", turn_id=f"turn_{block}")
        assert head is not None
        first = (await log.history(head, before=None, limit=1000))[0].id
        assert [message.id for message in await log.some(head, [first])] == [first]
        before = _steps(tmp_path / "agent.db", head, 1000)
        assert before < 130, "it walked from message to message, not over the hundred summaries between"


def _steps(path: Path, head: str, depth: int) -> int:
    """How many messages the search for an ancestor reads."""
    statement = _ANCESTOR.rpartition("SELECT")[0] + "SELECT COUNT(*) FROM chain"
    with contextlib.closing(sqlite3.connect(path)) as file:
        [[steps]] = file.execute(statement, (head, depth, depth))
    return int(steps)
