"""Random reports, turns, deadlines, ends and moves: each brief has one member, and none is lost (A19)."""

import asyncio
import random
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.role_specs import BRIEF, spec_of, workspace_of
from worldagent.core.errors import CallRefused, TaskFailed, WorldAgentError
from worldagent.members import Contact, Society
from worldagent.members.data.roles import RoleStatus
from worldagent.members.mail.posted import EDGES, PostedBrief
from worldagent.memory.members import SOCIETY
from worldagent.storage import Database
from worldagent.testing import VirtualClock

pytestmark = [pytest.mark.requirement("A19"), pytest.mark.timeout(600)]

MEMBERS = ("a", "b", "c", "d")
STEPS = 40
OFTEN = {
    "give": 4,
    "begin": 6,
    "end": 6,
    "report": 8,
    "wait": 2,
    "reassign": 3,
    "retry": 2,
    "close": 1,
    "suspend": 1,
    "resume": 2,
    "terminate": 0.4,
}
"""How often each kind of step is taken."""


class Play:
    """A workspace at random work.

    Args:
        society: Its members.
        clock: Its clock.
        source: What chooses the steps.
    """

    def __init__(self, society: Society, clock: VirtualClock, source: random.Random) -> None:
        self.society = society
        self.clock = clock
        self.source = source
        self.board = society.board
        self.handling: dict[str, str] = {}  # the messages of the turns under way
        self.given: list[str] = []
        self.seen: Mapping[str, PostedBrief] = {}

    async def step(self) -> None:
        """Do a random step, as a gateway, a member or a person does it. A refusal changes nothing."""
        [kind] = self.source.choices([*OFTEN], [*OFTEN.values()]) if self.seen else ["give"]
        with suppress(WorldAgentError):
            await getattr(self, kind)()

    def brief(self) -> PostedBrief:
        """One of the briefs; mostly one that is not over."""
        found = [*self.seen.values()]
        left = [each for each in found if not each.is_over]
        return self.source.choice((left or found) if self.source.random() < 0.8 else found)

    def who(self, *more: str) -> str:
        return self.source.choice((*MEMBERS, *more))

    async def give(self) -> None:
        after = {self.brief().id for _ in range(self.source.choice((0, 0, 1, 2)))} if self.given else set[str]()
        more = {"deadline": self.source.choice((None, "1h", "2h")), "attempts": self.source.choice((1, 2, 3))}
        payload = {"message_type": "task_assignment", "task_brief": {**BRIEF, "after": [*after], **more}}
        new, giver = f"b{len(self.given)}", self.who("root", "root")
        await self.society.mail.send(giver, self.who(), payload={**payload, "reason": "A task."}, message_id=new)
        self.given.append(new)

    async def begin(self) -> None:
        heads = {each.message.to_id: each.message.id for each in await self.society.mail.waiting()}
        member = self.source.choice([each for each in heads if each not in self.handling] or ["root"])
        if member in heads:
            await self.society.mail.answer(heads[member])
            self.handling[member] = heads[member]

    async def end(self) -> None:
        error = self.source.choice(
            (None, None, TaskFailed("it failed", remedy="wait"), CallRefused("no", remedy="wait"))
        )
        if self.handling:
            await self.society.mail.ended(self.handling.pop(self.source.choice([*self.handling])), error)

    async def report(self) -> None:
        brief, state = self.brief(), self.source.choice(("accepted", "blocked", "done", "done", "failed"))
        member = brief.member if self.source.random() < 0.8 else self.who()
        to = brief.giver if self.source.random() < 0.8 else self.who("root")
        payload = {"message_type": "status_report", "state": state, "task": brief.id, "reason": "A task."}
        await self.society.mail.send(member, to, payload=payload)

    async def reassign(self) -> None:
        to, brief = self.who("root"), self.brief()
        by = self.source.choice(("user", "user", brief.giver, self.who()))
        assert (await self.board.reassign(brief.id, to, by=by)).member == to

    async def retry(self) -> None:
        await self.board.retry(self.brief().id)

    async def close(self) -> None:
        assert (await self.board.close(self.brief().id, "It is over.")).is_over

    async def suspend(self) -> None:
        await self.society.suspend(self.who())

    async def resume(self) -> None:
        await self.society.resume(self.who())

    async def terminate(self) -> None:
        for each in await self.society.terminate(self.who()):
            self.handling.pop(each, None)

    async def wait(self) -> None:
        await self.clock.advance(self.source.choice((600, 3600)))
        late = await self.board.expire()
        assert len(late) == len({*late})

    async def check(self) -> None:
        """What must hold after each step."""
        now = {each.id: each for each in await self.board.list(limit=1000)}
        assert sorted(now) == sorted(self.given), "none is lost or given twice"
        ended = {
            each
            for each in MEMBERS
            if (await self.society.members.member("novel", each)).life.status is RoleStatus.TERMINATED
        }
        letters = {
            each.message.id: each
            for who in (*MEMBERS, "root", "user")
            for each in await self.society.mail.of(who)
            if each.message.to_id == who and each.message.message_type == "task_assignment"
        }
        for brief in now.values():
            before = self.seen.get(brief.id)
            state = "open" if before is None else before.state
            assert brief.state == state or brief.state in EDGES[state], (before, brief)
            left = sum(now[each].state != "done" for each in brief.brief.after)
            assert brief.unmet == left or brief.state == "done", brief
            assert brief.attempt <= brief.most
            undelivered = [
                each
                for each in letters.values()
                if brief.id in (each.message.id, each.message.payload.get("task")) and each.state in ("waiting", "held")
            ]
            assert [each.message.id for each in undelivered] in ([], [brief.message]), "it is delivered to one member"
            if brief.is_over:
                assert undelivered == []
                continue
            assert brief.member not in ended, brief
            letter = letters.get(brief.message)
            assert (letter is None) == (brief.message == ""), brief
            if letter is not None:
                assert letter.message.to_id == brief.member
                assert (letter.state == "held") == (brief.unmet > 0), brief
                assert brief.state != "open" or letter.state == "waiting", brief
                assert brief.state != "accepted" or letter.state != "held", brief
        self.seen = now


@settings(max_examples=max(40, settings().max_examples // 2))
@given(st.integers(0, 2**32), st.sampled_from(("close", "reassign")))
def test_each_brief_has_one_member_and_moves_along_the_edges(seed: int, ends: str) -> None:
    async def plays() -> None:
        with tempfile.TemporaryDirectory() as folder:
            database, clock = await Database.open(Path(folder) / "a.db", schemas=[SOCIETY]), VirtualClock()
            play = Play(Society(workspace_of(briefs_of_ended=ends), database, clock), clock, random.Random(seed))
            for name in MEMBERS:  # `a` made `d`
                await play.society.join(spec_of(name, "a" if name == "d" else ""))
            for one in (*MEMBERS, "root"):
                for other in (*MEMBERS, "root"):
                    if one != other:
                        await play.society.contacts.add(one, Contact(id=other, role=other, reason="Work."))
            for _ in range(STEPS):
                await play.step()
                await play.check()
            await database.aclose()

    asyncio.run(plays())
