"""What waits in a workspace: the questions of members to people, and what waits for a member (A12)."""

from pathlib import Path

import pytest

from support.desk import Desk, cro, event
from worldagent.agent.runtime.inside import inside
from worldagent.core.errors import InvalidArgument
from worldagent.core.pauses import Approve
from worldagent.members import Gateway, Society

pytestmark = pytest.mark.requirement("A12")


async def test_the_owner_finds_all_questions_that_wait_in_the_turns_of_members(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        for id_, domain in (("cro", "revenue"), ("cfo", "money")):
            await agent.society.join(cro(role_id=id_, domains=(domain,)))
            await agent.society.events.post(event(f"e-{id_}", "deal.price", domain))
        await Gateway(agent).deliver()
        found = await agent.society.pauses()
        assert sorted((each.member, each.thread, each.pause.kind, each.pause.function) for each in found) == [
            ("cfo", "event e-cfo", "approval", "price"),
            ("cro", "event e-cro", "approval", "price"),
        ]
        assert [each.pause.since for each in found] == sorted(each.pause.since for each in found)
        first = found[0]
        turn = await agent.thread(first.thread, account=first.account).resume({first.pause.id: Approve()})
        assert turn.status == "done"
        assert await agent.society.pauses() == found[1:]
        with pytest.raises(InvalidArgument, match="this society has no threads"):
            await Society(agent.society.config, inside(agent).stores.database).pauses()


@pytest.mark.on_every_database
async def test_what_waits_for_a_member_is_listed(tmp_path: Path) -> None:
    async with Desk().agent(tmp_path) as agent:
        await agent.society.join(cro())
        await agent.society.events.post(event("e0", "deal.price"))
        await Gateway(agent).deliver()
        await agent.society.events.post(event("e1"))
        await agent.society.mail.send("root", "cro", "How is it?", message_id="m1")
        letters, events = await agent.society.queue("cro")
        assert [(each.message.id, each.state) for each in letters] == [("m1", "waiting")]
        assert [(each.event.id, each.state) for each in events] == [("e0", "paused"), ("e1", "waiting")]
        assert await agent.society.queue("cro", most=1) == (letters, events[:1])
