"""The layer that hosts share: an open agent and the database of its home answer a call alike (T4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import home
from support.hat_shop import agent
from worldagent.hosts.service import threads as calls
from worldagent.hosts.service.arguments import (
    ForkArguments,
    HistoryArguments,
    RenameArguments,
    ThreadArguments,
    ThreadsArguments,
)
from worldagent.hosts.service.call import Call, Caller
from worldagent.hosts.service.home import open_threads

__all__ = ["home"]  # fixture


def call(given: Any) -> Call[Any]:
    return Call(given=given, caller=Caller(workspace="shop", account="ana"))


READS: list[tuple[Callable[[Call[Any], calls.Threads], Awaitable[Any]], Any]] = [
    (calls.threads, ThreadsArguments()),
    (calls.threads, ThreadsArguments(status="paused", of_account="bob")),
    (calls.pauses, ThreadArguments(thread="hats")),
    (calls.pauses, ThreadArguments(thread="none")),
    (calls.history, HistoryArguments(thread="talk", limit=1)),
    (calls.history, HistoryArguments(thread="plan")),
]


@pytest.mark.requirement("T4")
async def test_a_home_without_an_agent_answers_as_the_agent_does(home: Path) -> None:
    async with agent() as shop:
        await shop.thread("talk", account="ana").converse("Hello")
        await calls.fork(call(ForkArguments(thread="talk", to="plan")), shop)
        await shop.thread("hats", account="bob").task("pick", {"what": "hat"})
        expected = [await read(call(given), shop) for read, given in READS]
        storage = shop.storage
    async with open_threads(storage, "shop") as opened:
        assert opened is not None
        assert [await read(call(given), opened) for read, given in READS] == expected
        asked = expected[2]
        assert (asked.status, len(asked.pauses), asked.next) == ("paused", 2, [])  # it is another account's
        renamed = await calls.thread_rename(call(RenameArguments(thread="talk", title="Hats")), opened)
        assert renamed.title == "Hats"


@pytest.mark.requirement("T4")
async def test_threads_are_found_by_channel_account_words_and_page(home: Path) -> None:
    async with agent() as shop:
        for name, channel in (("t1", "c1"), ("t2", "c2")):
            await shop.thread(name, account="ana", channel=channel).converse(f"Hello from {name}")

        async def found(**given: Any) -> list[Any]:
            return list((await calls.threads(call(ThreadsArguments(**given)), shop)).threads)

        [newest] = await found(limit=1)
        asked: list[dict[str, Any]] = [{"channel": "c1"}, {"query": "FROM T1"}, {"before": newest.page_key}]
        for given in asked:
            assert [each.thread for each in await found(**given)] == ["t1"], given
        assert await found(of_account="bob") == []
