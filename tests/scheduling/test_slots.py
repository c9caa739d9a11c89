"""When a schedule fires: cron lines, intervals and single times, over changes of clocks (T7)."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worldagent.core.errors import InvalidArgument, MissingExtra, ScheduleInvalid
from worldagent.scheduling import Cron, Every, Once, Slot, When
from worldagent.scheduling.slots import find_zone, newest_slots, slots_after

# For each zone the days of 2026 on which clocks are set forward and back. Lord Howe's change by half an hour.
CHANGES = {
    "Europe/Berlin": (datetime(2026, 3, 29), datetime(2026, 10, 25)),
    "America/New_York": (datetime(2026, 3, 8), datetime(2026, 11, 1)),
    "Australia/Lord_Howe": (datetime(2026, 10, 4), datetime(2026, 4, 5)),
}
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def local_slots(when: When, zone_name: str, day: datetime) -> list[str]:
    """The slots of one local day, as the clock there shows them, with the offset."""
    zone = ZoneInfo(zone_name)
    begin, end = (each.replace(tzinfo=zone).astimezone(UTC) for each in (day, day + DAY))
    found = newest_slots(when, zone, begin - timedelta(seconds=1), end - timedelta(seconds=1), 2000)
    return [slot.at.astimezone(zone).strftime("%H:%M%z") for slot in found]


# --- daylight rules ---------------------------------------------------------------------------------------------------

FORWARD = [
    ("Europe/Berlin", "30 2 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "30 1,2,3 * * *", ["01:30+0100", "03:00+0200", "03:30+0200"]),
    ("Europe/Berlin", "0,30 2 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "0 2,3 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "*/20 2 * * *", []),
    (
        "Europe/Berlin",
        "0 */2 * * *",
        [f"{hour:02}:00+0{1 if hour < 2 else 2}00" for hour in range(0, 24, 2) if hour != 2],
    ),
    ("America/New_York", "30 2 * * *", ["03:00-0400"]),
    ("America/New_York", "*/30 1-3 * * *", ["01:00-0500", "01:30-0500", "03:00-0400", "03:30-0400"]),
    ("Australia/Lord_Howe", "15 2 * * *", ["02:30+1100"]),
    ("Australia/Lord_Howe", "45 2 * * *", ["02:45+1100"]),
    ("Australia/Lord_Howe", "*/15 2 * * *", ["02:30+1100", "02:45+1100"]),
    ("Australia/Lord_Howe", "0 */5 * * *", ["00:00+1030", "05:00+1100", "10:00+1100", "15:00+1100", "20:00+1100"]),
]

BACK = [
    ("Europe/Berlin", "30 2 * * *", ["02:30+0200"]),
    ("Europe/Berlin", "30 1,2,3 * * *", ["01:30+0200", "02:30+0200", "03:30+0100"]),
    ("Europe/Berlin", "*/30 2 * * *", ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]),
    ("America/New_York", "30 1 * * *", ["01:30-0400"]),
    (
        "America/New_York",
        "15 */1 * * *",
        ["00:15-0400", "01:15-0400", "01:15-0500"] + [f"{h:02}:15-0500" for h in range(2, 24)],
    ),
    ("Australia/Lord_Howe", "45 1 * * *", ["01:45+1100"]),
    (
        "Australia/Lord_Howe",
        "*/15 1 * * *",
        ["01:00+1100", "01:15+1100", "01:30+1100", "01:45+1100", "01:30+1030", "01:45+1030"],
    ),
    ("Australia/Lord_Howe", "0 */5 * * *", ["00:00+1100", "05:00+1030", "10:00+1030", "15:00+1030", "20:00+1030"]),
]


@pytest.mark.requirement("T7")
@pytest.mark.parametrize(("zone", "line", "slots"), FORWARD)
def test_a_day_on_which_clocks_are_set_forward(zone: str, line: str, slots: list[str]) -> None:
    assert local_slots(Cron(line), zone, CHANGES[zone][0]) == slots


@pytest.mark.requirement("T7")
@pytest.mark.parametrize(("zone", "line", "slots"), BACK)
def test_a_day_on_which_clocks_are_set_back(zone: str, line: str, slots: list[str]) -> None:
    assert local_slots(Cron(line), zone, CHANGES[zone][1]) == slots


@pytest.mark.parametrize("zone", CHANGES)
def test_every_quarter_of_an_hour_counts_real_time_over_both_changes(zone: str) -> None:
    for day in CHANGES[zone]:
        begin = day.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) - DAY
        found = [slot.at for slot in islice(slots_after(Cron("*/15 * * * *"), ZoneInfo(zone), begin), 300)]
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=15)}


def test_a_day_that_a_zone_left_out_fires_once_with_the_next() -> None:
    # Samoa crossed the date line: 30 December 2011 did not exist there.
    slots = islice(slots_after(Cron("0 0 * * *"), ZoneInfo("Pacific/Apia"), datetime(2011, 12, 29, 0, tzinfo=UTC)), 3)
    assert [slot.at.astimezone(ZoneInfo("Pacific/Apia")).day for slot in slots] == [29, 31, 1]


def test_intervals_are_real_time() -> None:
    begin = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    slots = islice(slots_after(Every(3600), ZoneInfo("Europe/Berlin"), begin), 3)
    assert [slot.id for slot in slots] == ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T03:00:00Z"]


def test_an_interval_counts_from_its_start_and_has_no_slot_before_it() -> None:
    start = datetime(2026, 1, 1, 12, 0, 7, tzinfo=ZoneInfo("Europe/Berlin"))
    every = Every(90, start)
    early, late = (next(slots_after(every, UTC, start + timedelta(seconds=each))).at - start for each in (-1e6, 90))
    assert (early, late) == (timedelta(), timedelta(seconds=180))


@pytest.mark.parametrize(
    ("at", "slot"),
    [
        (datetime(2026, 3, 29, 2, 30), "2026-03-29T01:00:00Z"),
        (datetime(2026, 10, 25, 2, 30), "2026-10-25T00:30:00Z"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=UTC), "2026-10-25T02:30:00Z"),
    ],
)
def test_once_fires_once(at: datetime, slot: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    assert [each.id for each in slots_after(Once(at), zone, datetime(2026, 1, 1, tzinfo=UTC))] == [slot]
    assert not list(slots_after(Once(at), zone, Slot.parse(slot).at))


def test_the_last_slots_before_the_end_of_time_are_no_error() -> None:
    end = datetime(9999, 12, 31, 23, 58, tzinfo=UTC)
    assert len(list(slots_after(Every(60), UTC, end))) == 1
    assert len(list(slots_after(Cron("* * * * *"), UTC, end - DAY))) > 1400


# --- properties -------------------------------------------------------------------------------------------------------

MINUTES = st.sampled_from(["0", "30", "*/15", "7", "15,45", "*", "50-59"])
HOURS = st.sampled_from(["2", "1", "*/5", "*", "0-3", "1,2,3", "0"])
DAYS = st.sampled_from(["* * *", "* * SUN", "L * *", "1-7 * SUN", "1 * *"])
LINES = st.builds(lambda minute, hour, day: f"{minute} {hour} {day}", MINUTES, HOURS, DAYS)
WHEN = st.one_of(
    LINES.map(Cron),
    st.integers(60, 90_000).map(Every),
    st.datetimes(datetime(2026, 3, 1), datetime(2026, 11, 30)).map(Once),
)
ZONES = st.sampled_from([*CHANGES, "UTC", "Asia/Kathmandu", "Pacific/Apia"])
OFFSETS = st.integers(-40 * 60, 40 * 60)


@st.composite
def times(draw: st.DrawFn) -> datetime:
    """A time near one of the changes."""
    zone = draw(st.sampled_from(sorted(CHANGES)))
    day = draw(st.sampled_from(CHANGES[zone])).replace(tzinfo=ZoneInfo(zone))
    return day.astimezone(UTC) + timedelta(minutes=draw(OFFSETS), seconds=draw(st.integers(0, 59)))


@pytest.mark.requirement("T7")
@given(when=WHEN, zone=ZONES, begin=times(), later=st.integers(0, 72 * 60))
@example(when=Cron("30 2 * * *"), zone="Europe/Berlin", begin=datetime(2026, 10, 24, tzinfo=UTC), later=1446)
@example(when=Cron("* 2 * * *"), zone="Australia/Lord_Howe", begin=datetime(2026, 4, 4, tzinfo=UTC), later=933)
def test_slots_increase_and_are_the_same_whenever_they_are_worked_out(
    when: When, zone: str, begin: datetime, later: int
) -> None:
    asked, until = begin + later * MINUTE, begin + 4 * DAY
    whole = [slot for slot in islice(slots_after(when, find_zone(zone), begin), 8000) if slot.at <= until]
    assert all(earlier < after for earlier, after in pairwise(whole))
    assert all(slot.at > begin for slot in whole)
    rest = [slot for slot in islice(slots_after(when, find_zone(zone), asked), 8000) if slot.at <= until]
    assert rest == [slot for slot in whole if slot.at > asked]
    assert newest_slots(when, find_zone(zone), asked, until, 7) == rest[-7:]


def numbers(field: str, highest: int) -> set[int]:
    """The values of a minute or an hour, read without the library."""
    found: set[int] = set()
    for part in field.split(","):
        term, _, step = part.partition("/")
        low, _, high = ("0", "", str(highest)) if term == "*" else term.partition("-")
        found |= set(range(int(low), int(high or low) + 1, int(step or 1)))
    return found


@pytest.mark.requirement("T7")
@given(minute=MINUTES, hour=HOURS, zone=st.sampled_from(sorted(CHANGES)), forward=st.booleans())
def test_slots_are_those_that_a_clock_on_the_wall_shows(minute: str, hour: str, zone: str, forward: bool) -> None:
    day = CHANGES[zone][0 if forward else 1]
    place = ZoneInfo(zone)
    begin = (day - DAY).replace(tzinfo=place).astimezone(UTC)
    # Each minute of three days, with what the clock shows, is the whole truth about the change.
    shown = [
        (begin + each * MINUTE, (begin + each * MINUTE).astimezone(place).replace(tzinfo=None, fold=0))
        for each in range(3 * 1440)
    ]
    wanted = [(h, m) for h in sorted(numbers(hour, 23)) for m in sorted(numbers(minute, 59))]
    if minute.startswith("*") or hour.startswith("*"):
        right = [at for at, wall in shown if (wall.hour, wall.minute) in set(wanted)]
    else:
        walls = [day + each * DAY + timedelta(hours=h, minutes=m) for each in (-1, 0, 1, 2) for h, m in wanted]
        firsts = {next(at for at, wall in shown if wall >= each) for each in walls if each <= shown[-1][1]}
        right = sorted(firsts)
    found = newest_slots(Cron(f"{minute} {hour} * * *"), place, begin - MINUTE, shown[-1][0], 5000)
    assert [slot.at for slot in found] == right


# --- the same in each process -----------------------------------------------------------------------------------------


@pytest.fixture
def _far_away() -> Iterator[None]:
    """This process in another zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.mark.requirement("T7")
@pytest.mark.usefixtures("_far_away")
@pytest.mark.parametrize(
    ("when", "slots"),
    [
        (Cron("30 2 * * *"), ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        (Every(86400), ["2026-03-28T00:00:00Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"]),
        (Once(datetime(2026, 3, 29, 2, 30)), ["2026-03-29T01:00:00Z"]),
    ],
)
def test_the_zone_of_the_machine_and_of_the_time_asked_does_not_matter(when: When, slots: list[str]) -> None:
    begin = datetime(2026, 3, 27, 20, tzinfo=UTC)
    for asked in (begin, begin.astimezone(), begin.astimezone(ZoneInfo("Europe/Berlin"))):
        assert [slot.id for slot in islice(slots_after(when, ZoneInfo("Europe/Berlin"), asked), 3)] == slots


def test_slots_after_a_time_without_a_zone_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="`after` must have a time zone"):
        next(slots_after(Every(60), UTC, datetime(2026, 1, 1)))


def test_the_id_of_a_slot_is_its_time_in_utc() -> None:
    slot = Slot(datetime(2026, 3, 29, 1, tzinfo=UTC))
    assert slot.id == "2026-03-29T01:00:00Z"
    assert Slot.parse(slot.id) == slot
    for wrong in ("2026-03-29T02:00:00+01:00", "2026-03-29", "tomorrow", ""):
        with pytest.raises(InvalidArgument, match="not the id of a slot; give a time such as"):
            Slot.parse(wrong)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["0 0 31 2 *", "0 0 30 FEB *", "0 0 31 4,6,9,11 *", "0 0 */31 * MON#2"])
def test_a_cron_line_that_never_fires_is_refused(line: str) -> None:
    with pytest.raises(ScheduleInvalid, match="never fires; give a day that exists"):
        Cron(line)


@pytest.mark.parametrize(
    "line", ["0 0 29 2 *", "0 0 31 2 MON", "0 0 * 2 MON#5", "0 0 LW * *", "0 0 * * 7", "59 23 31 12 *"]
)
def test_a_cron_line_that_fires_rarely_is_not_refused(line: str) -> None:
    assert next(slots_after(Cron(line), UTC, datetime(2026, 1, 1, tzinfo=UTC))).at.year >= 2026


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        (" @midnight ", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 1 *"),
        ("0 0 ? * MON", "0 0 * * MON"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("30 7 * jan mon-fri", "30 7 * JAN MON-FRI"),
        ("0 0 * * FRI-MON", "0 0 * * FRI,SAT,SUN,MON"),
        ("0 0 * * fri-sun,wed", "0 0 * * 3,5,6,0"),
        ("0 0 * * 5-1", "0 0 * * 0,1,5,6"),
        ("0 0 * * 7-2", "0 0 * * 0-2"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * THU-TUE/2", "0 0 * * THU,SAT,MON"),
        ("0 0 1 NOV-FEB *", "0 0 1 1,2,11,12 *"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("50-10/10 * * * *", "50,0,10 * * * *"),
    ],
)
def test_other_notations_mean_what_they_mean_elsewhere(line: str, plain: str) -> None:
    after = datetime(2026, 3, 1, tzinfo=UTC)
    given, meant = (list(islice(slots_after(Cron(each), UTC, after), 60)) for each in (line, plain))
    assert given == meant
    assert Cron(line).counts_real_time == Cron(plain).counts_real_time
    assert Cron(line).cron == line


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("60 * * * *", "the minute of the cron line"),
        ("* 24 * * *", "the hour of"),
        ("* * 32 * *", "the day-of-month of"),
        ("* * * JANUARY *", "the month of"),
        ("* * * * 8", "the day-of-week of"),
        ("*/0 * * * *", "the minute of"),
        ("* * * *", "has 4 fields; give five"),
        ("0 * * * * *", "has 6 fields; give five"),
        ("@reboot", "'@reboot' cannot be read: a schedule has no start of a machine; start the turn"),
        ("@every 5m", "an interval is not a cron line; give whole seconds as `every`"),
        ("@dayly", "'@dayly' cannot be read: there is no such name; give five fields, or one of @hourly"),
        ("? * * * *", "the minute of"),
        ("* * 28-3 * *", "the day-of-month of"),
        ("* * * * FRI-MUN", "the day-of-week of"),
        ("* * * * FRI-MON/0", "the day-of-week of"),
        ("", "has 0 fields"),
        ("* * * * *" * 100, "at most 200 ASCII characters"),
        ("٣ * * * *", "at most 200 ASCII characters"),
        (5, "at most 200 ASCII characters"),
    ],
)
def test_a_cron_line_that_cannot_be_read_is_refused(line: str, problem: str) -> None:
    with pytest.raises(ScheduleInvalid, match=problem):
        Cron(line)


@given(fields=st.lists(st.text("*/-,#?@LWMONJAFEBRI0123579", min_size=1, max_size=6), min_size=5, max_size=5))
def test_any_other_text_is_refused_or_has_slots(fields: list[str]) -> None:
    try:
        cron = Cron(" ".join(fields))
    except ScheduleInvalid:
        return
    assert next(slots_after(cron, UTC, datetime(2026, 1, 1, tzinfo=UTC))).at.year >= 2026


@pytest.mark.parametrize("every", [0, -5, 0.5, 1.5, True, "60", 10**9, None])
def test_an_interval_must_be_whole_seconds(every: int) -> None:
    with pytest.raises(ScheduleInvalid, match="`every` must be whole seconds from 1 to"):
        Every(every)


def test_the_start_of_an_interval_needs_a_zone_and_a_single_time_is_a_datetime() -> None:
    with pytest.raises(ScheduleInvalid, match="`start` must be a time with a zone"):
        Every(60, datetime(2026, 1, 1))
    with pytest.raises(ScheduleInvalid, match="`at` must be a time, got str"):
        Once("2026-01-01")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("name", ["Mars/Phobos", "Europe", "../etc/passwd", "", None, "Europe/Berlin\0"])
def test_an_unknown_zone_is_refused(name: object) -> None:
    with pytest.raises(ScheduleInvalid, match=r"there is no time zone .* use a name of the IANA database"):
        find_zone(name)


def test_a_machine_without_zone_data_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_data(name: str) -> ZoneInfo:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr("worldagent.scheduling.slots.ZoneInfo", no_data)
    with pytest.raises(MissingExtra, match=r"no time zone data.*'Europe/Berlin'.*pip install tzdata"):
        find_zone("Europe/Berlin")
    assert find_zone("UTC") is UTC


def test_cron_lines_without_the_library_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldagent.scheduling.when.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"'cronsim'.*pip install 'worldagent\[durable\]'"):
        Cron("0 9 * * *")
