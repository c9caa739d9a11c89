"""What is forgotten is in no file and no table, whatever had read it (M2, M4)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls, scripted_agent
from support.homes import database_of, found, rows
from support.leaks import capture_logs
from support.memory_tables import problems
from worldagent import Approve, Memory
from worldagent.harness import tool
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = [pytest.mark.requirement("M2", "M4"), pytest.mark.on_every_database]

RENT = "Rent is due on the first Thursday of the month, and the landlord's cat is called Mrs Tibbles."
BOAT = "The rent of the boat is due in the winter, when nobody of sound mind would sail it anywhere."


async def test_what_is_forgotten_is_in_no_file_of_the_home_and_no_table(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), memory=Memory()) as agent:
        kept = await agent.memory.add(BOAT, account="ana")
        first = await agent.memory.add("x", account="ana", tags=[RENT[:50]])
        entry = await agent.memory.edit(first.id, RENT, account="ana")
        turn = await agent.thread("t", account="ana").converse("When is the rent due?")
        assert set(turn.recalled) == {entry.id, kept.id}
        assert found(tmp_path, [RENT])
        await agent.memory.forget(entry.id, account="ana")
        assert found(tmp_path, [RENT]) == []
        for account in ("ana", "bob", None):
            assert [each.id for each, _ in await agent.memory.search(RENT, account=account)] == (
                [kept.id] if account == "ana" else []
            )
        assert await rows(agent, "wa_entry_word") == len(set(BOAT.lower().replace(",", "").replace(".", "").split()))
        assert await database_of(agent).read(lambda transaction: problems(transaction.execute)) == []
    assert found(tmp_path, [RENT]) == []


async def test_a_paused_turn_resumes_without_what_was_forgotten_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    @tool(risk="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    def reply(call: ScriptedCall) -> dict[str, Any]:
        return {"reply": "Done."} if call.steps else {"reply": "", **calls(("pay", {}))}

    lm = ScriptedLM(reply)
    with capture_logs() as logs:
        async with scripted_agent(tmp_path, lm, tools=[pay], memory=Memory()) as agent:
            thread = agent.thread("t", account="ana")
            [rent, boat] = [await agent.memory.add(text, account="ana") for text in (RENT, BOAT)]
            asked = await thread.converse("Pay the rent that is due.")
            assert set(asked.recalled) == {rent.id, boat.id}
            assert RENT in lm.calls[-1].user
            await agent.memory.forget(rent.id, account="ana")
            assert found(tmp_path, [RENT]) == []
            turn = await thread.resume({asked.pauses[0].id: Approve()})
            assert (turn.status, BOAT in lm.calls[-1].user, RENT in lm.calls[-1].text) == ("done", True, False)
            assert found(tmp_path, [RENT]) == []
        assert found(tmp_path, [RENT]) == []
    assert RENT not in logs.text
