"""What a profile says about how much of a thread the model sees, and what becomes of the rest (P5)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import CRITIC, scripted_agent
from worldagent import WorldAgent
from worldagent.agent import Thread
from worldagent.profiles import MemoryOverrides, Profile, Verification
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("P5")

LONG = "long " * 100


def model() -> ScriptedLM:
    def reply(call: ScriptedCall) -> Any:
        if "words" in call.fields:
            return {"summary": "What was said."}
        return {"result": "VERDICT"} if "request" in call.fields else {"reply": "ok"}

    return ScriptedLM(reply)


def remembering(home: Path, lm: ScriptedLM, **memory: Any) -> WorldAgent:
    profile = Profile("p", memory=MemoryOverrides(**memory), verification=Verification(enabled=False))
    return scripted_agent(home, lm, profile=profile, workers=[CRITIC])


def seen(lm: ScriptedLM) -> list[str]:
    """What the planner saw at last."""
    return [text for _, text in [call for call in lm.calls if "message" in call.fields][-1].messages]


def summed(lm: ScriptedLM) -> list[ScriptedCall]:
    return [call for call in lm.calls if "words" in call.fields]


async def say(thread: Thread, count: int, text: str = "") -> None:
    for number in range(count):
        await thread.converse(f"n{number} {text}")


async def test_short_term_size_is_how_many_messages_the_planner_sees(tmp_path: Path) -> None:
    for size in (4, 8):
        lm = model()
        async with remembering(tmp_path / str(size), lm, short_term_size=size, strategy="sliding_window") as agent:
            await say(agent.thread("t"), 8)
        assert len(seen(lm)) == size
        assert not summed(lm)


async def test_compression_begins_at_the_threshold_of_tokens(tmp_path: Path) -> None:
    for threshold, begun in ((1_000, True), (100_000, False)):
        lm = model()
        async with remembering(
            tmp_path / str(threshold), lm, compression_threshold=threshold, strategy="summary"
        ) as agent:
            await say(agent.thread("t"), 12, LONG)
        assert bool(summed(lm)) is begun
        assert sum(map(len, seen(lm))) <= 4 * threshold + 2 * len(LONG)


async def test_compression_ratio_bounds_the_length_of_a_summary(tmp_path: Path) -> None:
    words = []
    for ratio in (0.2, 0.4):
        lm = model()
        async with remembering(
            tmp_path / str(ratio), lm, compression_threshold=3_000, compression_ratio=ratio, strategy="summary"
        ) as agent:
            await say(agent.thread("t"), 28, LONG)
        words.append(int(summed(lm)[0].fields["words"]))
    assert 1.8 <= words[1] / words[0] <= 2.2


@pytest.mark.parametrize("strategy", ["summary", "selective"])
async def test_selective_keeps_results_of_tasks_word_for_word_and_summary_sums_them_up(
    tmp_path: Path, strategy: str
) -> None:
    lm = model()
    async with remembering(tmp_path, lm, short_term_size=8, strategy=strategy) as agent:
        thread = agent.thread("t")
        await thread.task("subagent", {"worker": "critic", "request": "Judge."})
        await say(thread, 8)
    assert summed(lm)
    assert ("VERDICT" in str(seen(lm))) is (strategy == "selective")
    assert ("VERDICT" in summed(lm)[0].fields["messages"]) is (strategy == "summary")


@pytest.mark.parametrize("kept", [True, False])
async def test_keep_marked_is_what_a_person_marked_as_kept(tmp_path: Path, kept: bool) -> None:
    lm = model()
    async with remembering(tmp_path, lm, short_term_size=8, keep_marked=kept) as agent:
        thread = agent.thread("t")
        await thread.converse("My name is Ana.")
        [asked, _] = await thread.history()
        await thread.keep(asked.id)
        await say(thread, 8)
        assert [message.id for message in await thread.kept()] == [asked.id]
    assert ("My name is Ana." in str(seen(lm))) is kept
