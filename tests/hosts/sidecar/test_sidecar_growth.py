"""What a sidecar holds does not grow with the threads that it has served: objects are counted, not memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering
from support.counters import growing, held
from support.role_hosts import BOUND, Mode
from support.sidecar_served import agents, caller_of, served
from worldagent.hosts.sidecar import Sidecar
from worldagent.storage import lease

pytestmark = [pytest.mark.requirement("T10"), pytest.mark.timeout(300)]

_TURNS, _FEWEST, _MOST = 40, 3, 10
_REMEMBERED = 32  # threads of which an agent keeps in memory what their last owner knew

STARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recorded": {"role": {"content": "You are a lighthouse keeper of few words."}, "detach": True, "key": "first"},
}


@pytest.mark.parametrize(
    ("start", "mode"),
    [
        ("recorded", "auto"),
        pytest.param("plain", "legacy", marks=pytest.mark.soak),
        pytest.param("plain", "auto", marks=pytest.mark.soak),
        pytest.param("recorded", "legacy", marks=pytest.mark.soak),
    ],
)
async def test_turns_on_threads_of_their_own_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, start: str
) -> None:
    monkeypatch.setattr(lease, "MAX_KNOWN_KEYS", _REMEMBERED)
    lm = answering()
    sidecar = Sidecar(agents(tmp_path, lm=lm))
    async with served(sidecar) as url, caller_of(url, mode) as ask:

        async def turns(count: int, prefix: str) -> None:
            for number in range(count):
                where: dict[str, Any] = {"workspace": "one", "account": "ana", "thread": f"{prefix}{number}"}
                answer = await ask("converse", **where, text="Hi", **STARTS[start])
                assert answer["turn"]["status"] == "done"
                ask.events.clear()
                ask.progress.clear()
                lm.calls.clear()
            async with asyncio.timeout(BOUND):
                while sidecar.health()["turns"]:  # noqa: ASYNC110 -- it has answered, and is about to forget
                    await asyncio.sleep(0.02)

        await turns(_REMEMBERED, "before")  # that memory is full from now on
        looks: list[Counter[str]] = []
        while len(looks) < _FEWEST or (len(looks) < _MOST and growing(looks, _TURNS)):  # what leaks does so each time
            await turns(_TURNS, f"round{len(looks)}-")
            looks.append(held())
        assert growing(looks, _TURNS) == {}
