"""The board: how far each task brief is, who has it, and what moves it (A19)."""

import contextlib
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.role_specs import BRIEF, spec_of, workspace_of
from support.society import DEVELOPER, able, enlisted, one_by_one
from support.society import office as office_of
from worldagent.core.errors import (
    BriefInvalid,
    CallRefused,
    InvalidArgument,
    MessageInvalid,
    TaskFailed,
    UnknownBrief,
    UnknownContact,
    WorldAgentError,
)
from worldagent.members import AutonomousRole, Contact, Letter, Society, TaskBrief
from worldagent.members.life.aging import count_old
from worldagent.members.mail.posted import drop_briefs
from worldagent.storage import Database
from worldagent.testing import VirtualClock

pytestmark = pytest.mark.requirement("A19")

FAILURE = TaskFailed("it failed", remedy="try it again")
REFUSAL = CallRefused("the turn was cancelled", remedy="do without it")


class Office:
    """Members `cro` and `bdr` of the World Agent, who know each other, and `qa`, whom only the World Agent knows."""

    def __init__(self, database: Database, **policy: Any) -> None:
        self.clock = VirtualClock()
        self.society = Society(workspace_of(DEVELOPER, **policy), database, self.clock)
        self.board = self.society.board

    async def begin(self) -> None:
        for each in ("cro", "bdr", "qa"):
            await self.society.join(spec_of(each))
        for one, other in (("cro", "bdr"), ("bdr", "cro")):
            await self.society.contacts.add(one, Contact(id=other, role=other.upper()))

    async def give(self, id_: str, to: str = "cro", giver: str = "root", **more: Any) -> Letter:
        payload = {"message_type": "task_assignment", "task_brief": {**BRIEF, **more}, "reason": "A task."}
        return await self.society.mail.send(giver, to, payload=payload, message_id=id_)

    async def report(
        self, member: str = "cro", to: str = "root", text: str = "", answers: str = "", **more: Any
    ) -> None:
        given = {"message_type": "status_report", "reason": "A task.", **more}
        await self.society.mail.send(member, to, text, payload=given, answers=answers)

    async def turn(self, message_id: str, error: WorldAgentError | None = None, *, ends: bool = True) -> None:
        """Begin the turn of a message as a gateway does, and end it."""
        await self.society.mail.answer(message_id)
        if ends:
            await self.society.mail.ended(message_id, error)

    async def states(self) -> dict[str, str]:
        return {each.id: f"{each.state} {each.member}" for each in await self.board.list()}

    async def told(self, member: str) -> list[str]:
        """What the system told a member, as it waits in its mailbox."""
        found = [each for each in await self.society.mail.of(member) if each.message.to_id == member]
        return [each.message.content for each in found if each.message.content.startswith("From the system:")]

    async def waiting(self, member: str) -> list[str]:
        """The messages that wait for a member."""
        letters, _ = await self.society.queue(member)
        return [each.message.id for each in letters]


async def office(database: Database, **policy: Any) -> Office:
    made = Office(database, **policy)
    await made.begin()
    return made


# --- the brief --------------------------------------------------------------------------------------------------------


def brief(**more: Any) -> TaskBrief:
    return TaskBrief.from_json({**BRIEF, **more})


def test_a_brief_without_the_new_fields_reads_and_is_stored_as_before() -> None:
    assert {*brief().to_json()} == {*BRIEF, "collaborators", "references", "priority"}
    assert "Report" not in brief().to_text()
    more = brief(deadline="3d", after=["b1"], attempts=2)
    assert TaskBrief.from_json(more.to_json()) == more
    assert more.to_text().splitlines()[-2:] == [
        "Deadline: 3d",
        "Report: send a status_report with the state done, failed or blocked, and say why if it is not done",
    ]
    assert "截止时间: 3d" in more.to_text("zh")


@pytest.mark.parametrize(
    ("deadline", "at"),
    [
        ("45m", datetime(2030, 1, 1, 0, 45, tzinfo=UTC)),
        ("8h", datetime(2030, 1, 1, 8, tzinfo=UTC)),
        ("3 d", datetime(2030, 1, 4, tzinfo=UTC)),
        ("2w", datetime(2030, 1, 15, tzinfo=UTC)),
        ("2030-05-01T14:00+02:00", datetime(2030, 5, 1, 12, tzinfo=UTC)),
        (None, None),
    ],
)
def test_a_deadline_is_a_time_or_a_duration_from_when_it_is_sent(deadline: str | None, at: datetime | None) -> None:
    assert brief(deadline=deadline).sent_at(datetime(2030, 1, 1, tzinfo=UTC)).deadline == at


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("deadline", "tomorrow", "`deadline` must be a time"),
        ("deadline", "2030-05-01T12:00", "`deadline` must be a time"),
        ("deadline", "0d", "`deadline` must be a time"),
        ("deadline", "9999-12-31T23:00-10:00", "`deadline` must be a time"),
        ("deadline", 5, "`deadline` must be a time"),
        ("after", "b1", "`after` must be a list"),
        ("after", [1], "after"),
        ("after", 7, "`after` must be a list"),
        ("after", [f"b{number}" for number in range(51)], "`after` has more than 50"),
        ("attempts", 0, "`attempts` must be an integer from 1 to 20"),
        ("attempts", True, "`attempts` must be an integer"),
    ],
)
def test_a_field_that_a_brief_cannot_have_is_named(field: str, value: object, problem: str) -> None:
    with pytest.raises(BriefInvalid, match=problem):
        brief(**{field: value})


# --- what moves it ----------------------------------------------------------------------------------------------------


async def test_a_brief_is_open_then_accepted_then_done(database: Database) -> None:
    made = await office(database)
    await made.give("b1", deadline="3d")
    found = await made.board.get("b1")
    due = made.clock.now() + timedelta(days=3)
    assert (found.state, found.member, found.giver, found.brief.deadline, found.due) == (
        "open",
        "cro",
        "root",
        due,
        due,
    )
    await made.turn("b1")
    assert await made.states() == {"b1": "accepted cro"}
    await made.report(text="It waits for Kim.", state="blocked", answers="b1")
    found = await made.board.get("b1")
    assert (found.state, found.note) == ("blocked", "It waits for Kim.")
    await made.report(text="Here it is.", state="done", task="b1")
    found = await made.board.get("b1")
    assert (found.state, found.note, found.due) == ("done", "Here it is.", None)
    await made.report(state="failed", task="b1")
    assert await made.states() == {"b1": "done cro"}


async def test_a_report_that_names_no_brief_is_about_the_one_at_hand_or_the_last_one(database: Database) -> None:
    made = await office(database)
    await made.give("b1")
    await made.give("b2")
    await made.turn("b1", ends=False)
    await made.report(done=True)
    assert await made.states() == {"b1": "done cro", "b2": "open cro"}
    await made.society.mail.ended("b1")
    await made.turn("b2")
    await made.report(state="blocked")
    assert await made.states() == {"b1": "done cro", "b2": "blocked cro"}


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"done": False},
        {"state": "half"},
        {"state": ["done"]},
        {"task": "menu"},
        {"done": True, "task": "menu", "to": "bdr"},
    ],
)
async def test_a_report_without_a_known_state_or_to_others_moves_nothing(
    database: Database, payload: dict[str, Any]
) -> None:
    made = await office(database)
    await made.give("b1")
    await made.turn("b1")
    await made.report(**payload)
    assert await made.states() == {"b1": "accepted cro"}


async def test_a_report_on_a_brief_of_others_is_refused(database: Database) -> None:
    made = await office(database)
    await made.give("b1", "qa")
    for task in ("b1", "nothing"):
        with pytest.raises(MessageInvalid, match="`task` is not the id of a brief that 'cro' has"):
            await made.report(state="done", task=task)
    assert await made.states() == {"b1": "open qa"}


async def test_a_failed_turn_is_tried_again_as_often_as_the_brief_says(database: Database) -> None:
    made = await office(database)
    await made.give("b1", attempts=3)
    last = "b1"
    for attempt in (1, 2):
        await made.turn(last, FAILURE)
        found = await made.board.get("b1")
        assert (found.state, found.attempt, found.member) == ("open", attempt + 1, "cro")
        assert await made.waiting("cro") == [found.message]
        assert found.message != last
        last = found.message
    assert await made.told("root") == []
    await made.turn(last, FAILURE)
    await made.society.mail.ended(last, FAILURE)
    found = await made.board.get("b1")
    assert (found.state, found.note) == ("failed", "task_failed: try it again")
    assert (await made.waiting("cro"), len(await made.told("root"))) == ([], 1)


async def test_a_turn_that_was_cancelled_is_not_tried_again(database: Database) -> None:
    made = await office(database)
    await made.give("b1", attempts=3)
    await made.turn("b1", REFUSAL)
    assert await made.states() == {"b1": "failed cro"}


async def test_a_brief_is_late_once_and_can_still_be_done(database: Database) -> None:
    made = await office(database)
    await made.give("b1", "bdr", "cro", deadline="1h")
    await made.turn("b1")
    assert await made.board.expire() == ()
    await made.clock.advance(3600)
    assert (await made.board.expire(), await made.board.expire()) == (("b1",), ())
    assert await made.states() == {"b1": "late bdr"}
    [text] = await made.told("cro")
    assert text == "From the system: the deadline of the brief b1 is over, and bdr has not reported it done."
    await made.report("bdr", "cro", state="done", answers="b1")
    assert await made.states() == {"b1": "done bdr"}


async def test_a_brief_whose_deadline_is_over_is_not_given(database: Database) -> None:
    made = await office(database)
    with pytest.raises(BriefInvalid, match="its `deadline` is over since 20"):
        await made.give("b1", deadline="2000-01-01T00:00Z")
    assert await made.states() == {}


# --- dependencies -----------------------------------------------------------------------------------------------------


async def test_a_brief_is_delivered_once_those_before_it_are_done(database: Database) -> None:
    made = await office(database)
    await made.give("b1")
    await made.give("b2", "bdr")
    await made.give("b3", "qa", after=["b1", "b2"])
    assert (await made.states())["b3"] == "blocked qa"
    assert (await made.waiting("qa"), await made.society.mail.task_of("qa")) == ([], "")
    await made.report(state="done", task="b1")
    assert (await made.states())["b3"] == "blocked qa"
    await made.report("bdr", state="done", task="b2")
    assert (await made.states())["b3"] == "open qa"
    assert await made.waiting("qa") == ["b3"]
    assert "Report: " in await made.society.mail.task_of("qa")
    await made.turn("b3")
    assert (await made.states())["b3"] == "accepted qa"
    assert await made.waiting("cro") == [], "it was done before it was delivered"


async def test_a_brief_that_waits_for_a_failed_one_stays_blocked_and_its_giver_is_told_which(
    database: Database,
) -> None:
    made = await office(database)
    await made.give("b1", "bdr", "cro")
    await made.give("b2", "bdr", "cro", after=["b1"])
    await made.turn("b1", FAILURE)
    found = await made.board.get("b2")
    assert (found.state, found.note) == ("blocked", "it waits for b1, which failed")
    assert "the brief b1 failed, and these wait for it: b2. To give it to a contact" in (await made.told("cro"))[-1]
    await made.board.retry("b1")
    await made.report("bdr", "cro", state="done", task="b1")
    assert await made.states() == {"b1": "done bdr", "b2": "open bdr"}


@pytest.mark.parametrize("after", ["nothing", "b1", "b2"])
async def test_a_brief_depends_only_on_briefs_that_its_giver_sees(database: Database, after: str) -> None:
    made = await office(database)
    await made.give("b1", "qa")
    with pytest.raises(BriefInvalid, match=f"`after` names '{after}', which is not a brief that 'cro' gave or has"):
        await made.give("b2", "bdr", "cro", after=[after])


# --- moves of the giver and the owner ---------------------------------------------------------------------------------


async def test_a_brief_is_reassigned_once_to_a_contact_of_its_giver(database: Database) -> None:
    made = await office(database)
    await made.give("b1", "bdr", "cro")
    await made.turn("b1")
    with pytest.raises(UnknownContact) as refused:
        await made.board.reassign("b1", "qa", by="cro")
    assert "introduction" in str(refused.value)
    await made.society.contacts.add("cro", Contact(id="qa", role="QA", reason="Tests."))
    await made.board.reassign("b1", "qa", by="cro")
    for found in [await made.board.reassign("b1", "qa", by="cro"), await made.board.get("b1")]:
        assert (found.member, found.state, found.giver) == ("qa", "open", "cro")
    assert await made.waiting("qa") == [found.message]
    assert await made.told("bdr") == ["From the system: the brief b1 is not yours any more. Stop working on it."]
    assert await made.society.mail.task_of("bdr") == ""
    await made.report("bdr", "cro", state="done", answers="b1")
    assert await made.states() == {"b1": "open qa"}, "what its former member reports does not count"
    assert {each.id for each in await made.board.of("qa")} == {"b1"}
    assert await made.board.of("bdr") == ()


async def test_a_brief_that_was_not_begun_is_taken_from_its_mailbox(database: Database) -> None:
    made = await office(database)
    await made.give("b1")
    await made.board.reassign("b1", "bdr")
    assert (await made.waiting("cro"), len(await made.waiting("bdr"))) == ([], 1)


async def test_a_member_gives_a_brief_again_with_its_id(database: Database) -> None:
    made = await office(database)
    await made.give("b1", "bdr", "cro")
    payload = {"message_type": "task_assignment", "task": "b1"}
    with pytest.raises(MessageInvalid, match="was given by 'cro', and 'bdr' cannot move it"):
        await made.society.mail.send("bdr", "root", payload=payload)
    with pytest.raises(UnknownBrief):
        await made.society.mail.send("cro", "bdr", payload={**payload, "task": "b9"})
    letter = await made.society.mail.send("cro", "root", payload={**payload, "reason": "Help."})
    assert letter.message.payload["task_brief"]["objective"] == BRIEF["objective"]
    assert await made.states() == {"b1": "open root"}


async def test_a_retry_sends_a_brief_again_unless_it_is_under_way_or_done(database: Database) -> None:
    made = await office(database)
    await made.give("b1")
    assert (await made.board.retry("b1")).message == "b1"
    await made.turn("b1", FAILURE)
    again = await made.board.retry("b1")
    assert (again.state, again.attempt, await made.waiting("cro")) == ("open", 2, [again.message])
    assert (await made.board.retry("b1")) == again
    await made.report(state="done", task="b1")
    with pytest.raises(MessageInvalid, match="the brief 'b1' is done"):
        await made.board.retry("b1")


async def test_a_brief_is_closed_by_its_giver_or_the_owner(database: Database) -> None:
    made = await office(database)
    await made.give("b1", "bdr", "cro")
    await made.turn("b1")
    with pytest.raises(MessageInvalid, match="ask 'cro' or the owner"):
        await made.board.close("b1", "No.", by="bdr")
    for _ in range(2):
        found = await made.board.close("b1", "It is not needed.", by="charles")
        assert (found.state, found.note) == ("failed", "It is not needed.")
    assert await made.told("bdr") == ["From the system: the brief b1 is not yours any more. Stop working on it."]
    with pytest.raises(InvalidArgument, match="reason"):
        await made.board.close("b1", "")


# --- the end of a member ----------------------------------------------------------------------------------------------


async def test_briefs_of_a_terminated_member_are_closed(database: Database) -> None:
    made = await office(database)
    await made.give("b1")
    await made.give("b2")
    await made.give("b3", "bdr", after=["b2"])
    await made.turn("b1")
    await made.society.terminate("cro")
    assert await made.states() == {"b1": "failed cro", "b2": "failed cro", "b3": "blocked bdr"}
    assert (await made.board.get("b1")).note == "cro was terminated"
    assert (await made.told("root")) == [
        "From the system: the brief b2 failed, and these wait for it: b3. To give it to a contact, send a"
        " task_assignment with its id as `task`."
    ]


async def test_briefs_of_a_terminated_member_go_back_and_can_be_given_again(database: Database) -> None:
    made = await office(database, briefs_of_ended="reassign")
    await made.give("b1", "bdr", "cro")
    await made.give("b2", "bdr")
    await made.society.terminate("bdr")
    assert await made.states() == {"b1": "open cro", "b2": "open root"}
    assert "bdr cannot work on the brief b1 any more, so you have it" in (await made.told("cro"))[0]
    with pytest.raises(MessageInvalid, match="went back to 'cro'"):
        await made.board.retry("b1")
    await made.board.reassign("b1", "root")
    await made.report(state="done", task="b2", member="root", to="user")
    assert await made.states() == {"b1": "open root", "b2": "done root"}


async def test_briefs_go_to_who_is_above_a_giver_that_ended_before(database: Database) -> None:
    made = await office(database, briefs_of_ended="reassign")
    await made.society.join(spec_of("sdr", "cro", reports_to="root"))
    await made.society.contacts.add("sdr", Contact(id="qa", role="QA", reason="Tests."))
    await made.give("b1", "qa", "sdr")
    await made.society.terminate("cro")
    assert await made.states() == {"b1": "open qa"}
    await made.society.terminate("qa")
    assert await made.states() == {"b1": "open root"}


async def test_a_suspended_member_keeps_what_it_has_begun(database: Database) -> None:
    made = await office(database, briefs_of_ended="reassign")
    await made.give("b1")
    await made.give("b2")
    await made.turn("b1")
    await made.society.suspend("cro")
    assert await made.states() == {"b1": "accepted cro", "b2": "open root"}
    await made.society.resume("cro")
    assert await made.waiting("cro") == []


async def test_a_member_that_reports_its_task_done_leaves_it_done(database: Database) -> None:
    made = await office(database, briefs_of_ended="reassign")
    await made.society.join(spec_of("dev", ttl="task"))
    await made.give("b1", "dev")
    await made.turn("b1", ends=False)
    await made.report("dev", done=True)
    await made.society.mail.ended("b1")
    assert await made.society.expire() == ("dev",)
    assert await made.states() == {"b1": "done dev"}


async def test_what_a_removed_member_had_and_gave_is_gone(database: Database) -> None:
    made = await office(database)
    await made.give("b1")
    await made.give("b2", "bdr", "cro")
    await made.give("b3", "bdr", after=["b1"])
    await made.society.terminate("cro")
    await made.society.members.remove("novel", "cro")
    assert await made.states() == {"b3": "blocked bdr"}
    assert (await made.board.get("b3")).note == "a brief that it waits for was removed"


# --- pages ------------------------------------------------------------------------------------------------------------


async def test_a_board_has_pages_and_states(database: Database) -> None:
    made = await office(database)
    for number in range(5):
        await made.give(f"b{number}", "bdr" if number % 2 else "cro")
        await made.clock.advance(1)
    await made.report(state="done", task="b2")
    ids = [each.id for each in await made.board.list(limit=2)]
    assert ids == ["b4", "b3"]
    assert [each.id for each in await made.board.list(limit=2, after=ids[-1])] == ["b2", "b1"]
    assert [each.id for each in await made.board.of("cro")] == ["b4", "b2", "b0"]
    assert [each.id for each in await made.board.of("cro", state="open")] == ["b4", "b0"]
    assert [each.id for each in await made.board.given_by("root", state="done")] == ["b2"]
    assert await made.board.given_by("cro") == ()
    with pytest.raises(UnknownBrief):
        await made.board.list(after="b9")
    with pytest.raises(InvalidArgument, match="`state`"):
        await made.board.list(state="over")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="`limit`"):
        await made.board.list(limit=0)


async def test_briefs_that_are_over_go_after_their_age_unless_one_waits_for_them(database: Database) -> None:
    made = await office(database)
    await made.give("b1")
    await made.give("b2", after=["b1"])
    await made.give("b3", "bdr")
    await made.give("b4", "qa")
    for id_, member, state in (("b1", "cro", "failed"), ("b3", "bdr", "done")):
        await made.report(member, state=state, task=id_)
    now = made.clock.now().timestamp()
    for before, gone in ((now, 0), (now + 1, 1)):
        counted = await database.read(partial(count_old, workspace="novel", before=before))
        dropped = await database.transact(partial(drop_briefs, workspace="novel", before=before))
        assert (counted["briefs"], dropped) == (gone, gone)
    assert sorted(await made.states()) == ["b1", "b2", "b4"]


# --- what a member looks into -----------------------------------------------------------------------------------------


async def test_marks_say_whose_texts_a_reader_is_shown(database: Database) -> None:
    made = await office(database)
    payload = {"message_type": "task_assignment", "task_brief": BRIEF, "reason": "A task."}
    await made.society.mail.send("cro", "bdr", payload=payload, message_id="b1", marks=["web"])
    brief = await made.board.get("b1")
    assert (brief.marks_for("bdr"), brief.marks_for("cro")) == (("message:cro", "web"), ("web",))
    report = {"message_type": "status_report", "state": "blocked", "task": "b1"}
    await made.society.mail.send("bdr", "cro", "It is closed.", payload=report, marks=["mail"])
    assert (await made.board.get("b1")).marks_for("cro") == ("mail", "message:bdr", "web")


async def test_a_member_with_a_brief_looks_at_its_board_and_one_without_has_no_such_tool(tmp_path: Path) -> None:
    lm = one_by_one(("task_board", {}))
    async with office_of(tmp_path, lm) as agent:
        await enlisted(agent, "cro", "bdr", "qa")
        for id_, giver, to, after in (("b1", "root", "cro", []), ("b2", "cro", "bdr", ["b1"])):
            brief = {**BRIEF, "deadline": "2030-05-01T12:00Z", "after": after}
            payload = {"message_type": "task_assignment", "task_brief": brief, "reason": "A task."}
            await agent.society.mail.send(giver, to, payload=payload, message_id=id_)
        for member in ("cro", "qa"):
            with contextlib.suppress(WorldAgentError):  # there is no tool of this name
                await AutonomousRole(able(member), agent=agent).respond("What do you do?")
        first, *_, last = lm.calls
        assert ("task_board" in first.text, "task_board" in last.system) == (True, False)
        [step] = next(call.steps for call in lm.calls if call.steps)
        same = {"objective": BRIEF["objective"], "priority": "normal", "deadline": "2030-05-01T12:00:00Z"}
        assert json.loads(step[step.index('{"given"') :]) == {
            "yours": [{"id": "b1", "state": "open", "member": "cro", "giver": "root", **same}],
            "given": [{"id": "b2", "state": "blocked", "member": "bdr", "giver": "cro", "after": ["b1"], **same}],
        }
