"""A schedule as a value: what it accepts, and its JSON (T7)."""

import json
import re
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldagent.core import Tier
from worldagent.core.errors import FunctionInvalid, InvalidArgument, ScheduleInvalid, UnknownTier, WorldAgentError
from worldagent.scheduling import Cron, Every, Once, Schedule, Slot, StartMessage, StartSkill, StartTarget, StartTask
from worldagent.scheduling.schedule import refuse_call_role

DAILY = Schedule(id="daily", when=Cron("0 9 * * *"), starts=StartMessage("Good morning."), workspace="shop")
DATA = DAILY.to_json()

WHENS = st.one_of(
    st.sampled_from(["0 9 * * *", "*/5 * L * MON"]).map(Cron),
    st.builds(Every, st.integers(1, 10**6), st.none() | st.datetimes(timezones=st.just(UTC))),
    st.datetimes(timezones=st.none() | st.just(UTC)).map(Once),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=3)
STARTS = st.one_of(
    st.just(StartMessage("Good morning.")),
    st.builds(StartTask, st.just("subagent"), OBJECTS),
    st.builds(StartSkill, st.just("meeting-notes"), OBJECTS | st.just("Write them.")),
    st.builds(StartTarget, st.just("emit"), JSON),
)
SCHEDULES = st.builds(
    Schedule,
    id=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", fullmatch=True),
    when=WHENS,
    starts=STARTS,
    workspace=st.just("shop"),
    account=st.none() | st.just("ana"),
    zone=st.sampled_from(["UTC", "Europe/Berlin"]),
    thread=st.none() | st.just("t1"),
    tiers=st.none() | st.sets(st.sampled_from([tier for tier in Tier if tier is not Tier.CALL])).map(tuple),
    misfire=st.sampled_from(["skip", "once", "all"]),
    misfire_limit=st.integers(1, 1000),
    overlap=st.sampled_from(["skip", "queue", "cancel-older"]),
    paused=st.booleans(),
    unattended=st.sampled_from([None, "refuse", "pause"]),
    guard=st.none() | st.booleans(),
    untrusted=st.sampled_from([(), ("mail", "readers:*@corp.com")]),
)


@pytest.mark.requirement("T7")
@given(schedule=SCHEDULES)
def test_a_schedule_is_read_back_from_its_json(schedule: Schedule) -> None:
    text = json.dumps(schedule.to_json())
    assert Schedule.from_json(json.loads(text)) == schedule
    assert Schedule.from_json(json.loads(text)).to_json() == schedule.to_json()


def test_json_needs_only_the_fields_without_a_default() -> None:
    data = {"id": "daily", "when": {"cron": "0 9 * * *"}, "starts": {"message": "Good morning."}, "workspace": "shop"}
    assert Schedule.from_json(data) == DAILY
    assert DATA["when"] == {"cron": "0 9 * * *"}
    assert Schedule.from_json({**data, "when": {"every": 60}}).when == Every(60)
    at = {"at": "2026-03-29T02:30:00"}
    assert Schedule.from_json({**data, "when": at}).when == Once(datetime(2026, 3, 29, 2, 30))


def test_a_time_with_a_zone_is_the_same_instant_after_json() -> None:
    begin = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    for when in (Once(begin), Every(7, begin)):
        before = replace(DAILY, when=when)
        after = Schedule.from_json(before.to_json())
        first, again = (next(each.slots(datetime(2026, 10, 1, tzinfo=UTC))) for each in (before, after))
        assert first == again == Slot(datetime(2026, 10, 25, 1, 30, tzinfo=UTC))


def test_the_start_of_a_slot_has_a_key_of_schedule_and_slot() -> None:
    assert DAILY.key(next(DAILY.slots(datetime(2026, 1, 1, tzinfo=UTC)))) == "daily@2026-01-01T09:00:00Z"


def test_the_thread_is_named_after_the_schedule_unless_it_is_given() -> None:
    assert DAILY.thread_id == "schedule:daily"
    assert replace(DAILY, thread="t1").thread_id == "t1"


def test_a_schedule_is_frozen_and_keeps_its_own_copy_of_params() -> None:
    params: dict[str, Any] = {"names": ["ana"]}
    starts = StartTask("subagent", params)
    params["names"].append("ben")
    assert starts.params == {"names": ["ana"]}
    with pytest.raises(FrozenInstanceError):
        DAILY.paused = True  # type: ignore[misc]  # what is tested


def test_tiers_are_listed_in_their_order_and_once() -> None:
    assert replace(DAILY, tiers=(Tier.ACCOUNT, Tier.WORKSPACE, Tier.ACCOUNT)).tiers == (Tier.WORKSPACE, Tier.ACCOUNT)
    assert replace(DAILY, tiers=()).tiers == ()


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule_id", ["", "a@b", "a b", "-a", ".a", "ä", "a" * 65, "a\n", "a/b", 5, None])
def test_an_id_with_other_characters_is_refused(schedule_id: Any) -> None:
    with pytest.raises(ScheduleInvalid, match="cannot be the id of a schedule; use 1 to 64 letters"):
        replace(DAILY, id=schedule_id)


@pytest.mark.parametrize(
    ("field", "value", "error", "text"),
    [
        ("when", "0 9 * * *", ScheduleInvalid, "`when` of the schedule 'daily' must be a Cron or Every or Once"),
        ("starts", "Good morning.", ScheduleInvalid, "`starts` of the schedule 'daily' must be a StartMessage or"),
        ("zone", "Mars/Phobos", ScheduleInvalid, "there is no time zone 'Mars/Phobos'"),
        ("workspace", "", InvalidArgument, "workspace '' is not an id"),
        ("account", " ", InvalidArgument, "account ' ' is not an id"),
        ("thread", "a\n", InvalidArgument, "is not an id"),
        ("misfire", "later", ScheduleInvalid, "`misfire` of the schedule 'daily' must be one of 'skip', 'once', 'all'"),
        ("misfire_limit", 0, ScheduleInvalid, "must be an integer from 1 to 1000"),
        ("misfire_limit", True, ScheduleInvalid, "must be an integer from 1 to 1000"),
        ("overlap", "forbid", ScheduleInvalid, "must be one of 'skip', 'queue', 'cancel-older'"),
        ("paused", 1, ScheduleInvalid, "`paused` of the schedule 'daily' must be true or false"),
        ("unattended", True, ScheduleInvalid, "must be one of None, 'refuse', 'pause'"),
        ("tiers", ("moon",), UnknownTier, "unknown tier 'moon'"),
        ("tiers", "account", ScheduleInvalid, "must be a list of tiers"),
        ("tiers", ("account", "call"), UnknownTier, "cannot have a call role"),
    ],
)
def test_a_field_that_is_invalid_is_named(field: str, value: Any, error: type[WorldAgentError], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        replace(DAILY, **{field: value})


@pytest.mark.requirement("T7")
def test_a_call_role_is_refused_and_not_shown() -> None:
    for refuse in (
        lambda: refuse_call_role("daily", "You are a pirate."),
        lambda: Schedule.from_json({**DATA, "role": {"name": "p", "content": "You are a pirate."}}),
    ):
        with pytest.raises(UnknownTier, match=r"'daily' cannot have a call role.*; store the role for") as refused:
            refuse()
        assert "pirate" not in str(refused.value)
    refuse_call_role("daily", None)
    assert Schedule.from_json({**DATA, "role": None}) == DAILY


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), {1, 2}, float("nan"), "\ud800", object(), b"x"])
def test_what_starts_holds_only_json(value: object) -> None:
    for make in (
        lambda: StartTask("subagent", {"secret": value}),
        lambda: StartSkill("meeting-notes", {"secret": value}),
        lambda: StartTarget("emit", value),
    ):
        with pytest.raises(ScheduleInvalid, match=r"(subagent|meeting-notes|emit)' must be JSON \(\w+\); use JSON"):
            make()


def test_what_starts_has_a_name_and_something_to_do() -> None:
    with pytest.raises(ScheduleInvalid, match="`message` must be text"):
        StartMessage(" ")
    with pytest.raises(FunctionInvalid, match="'two words' cannot name a shape"):
        StartTask("two words")
    with pytest.raises(ScheduleInvalid, match="must be a mapping; pass the fields"):
        StartTask("subagent", [1])  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ScheduleInvalid, match="the name of a skill must be"):
        StartSkill("", "Write.")
    with pytest.raises(ScheduleInvalid, match="must be a text or a mapping"):
        StartSkill("meeting-notes", "")
    with pytest.raises(ScheduleInvalid, match="the name of a target must be"):
        StartTarget("a" * 65)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"when": {"cron": "0 0 31 2 *"}}, "never fires"),
        ({"when": {"crn": "x"}}, "when: It must be an object with one of the keys cron, every, at"),
        ({"when": {"cron": "0 9 * * *", "every": 60}}, "when.Cron.every: Unexpected keyword argument"),
        ({"when": {"every": "60"}}, "when.Every.every: Input should be a valid integer"),
        ({"when": {"every": 0}}, "`every` must be whole seconds"),
        ({"when": {"at": "tomorrow"}}, "when.Once.at: Input should be a valid datetime"),
        ({"starts": {"task": "subagent", "params": [1]}}, "starts.StartTask.params: Input should be"),
        ({"misfire": "later"}, "misfire: Input should be 'skip', 'once' or 'all'"),
        ({"every": 60}, "every: Unexpected keyword argument; the fields are: id, when, starts, workspace"),
        ({"paused": "yes"}, "paused: Input should be a valid boolean"),
        ({"account": datetime(2026, 1, 1)}, "a schedule must be JSON"),
    ],
)
def test_json_that_is_not_a_schedule_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ScheduleInvalid, match=re.escape(text)):
        Schedule.from_json({**DATA, **change})


@pytest.mark.parametrize("data", [None, [], "daily", 5, {}])
def test_json_that_is_not_an_object_with_the_fields_is_refused(data: object) -> None:
    with pytest.raises(ScheduleInvalid, match="the schedule cannot be read"):
        Schedule.from_json(data)


def test_a_daily_schedule_fires_at_its_hour_all_year() -> None:
    schedule = replace(DAILY, zone="Europe/Berlin")
    slots = list(islice(schedule.slots(datetime(2026, 1, 1, tzinfo=UTC)), 366))
    assert {slot.at.astimezone(ZoneInfo("Europe/Berlin")).hour for slot in slots} == {9}
    assert slots[-1].at - slots[0].at == timedelta(days=365)
