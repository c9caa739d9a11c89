"""A recorded week is replayed with another file: what would differ, and what is unknown (A23)."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.lived_week import FOLDER, changed, lived
from support.role_specs import template_of
from worldagent import Storage
from worldagent.agent.stores import Stores
from worldagent.core.errors import InvalidArgument
from worldagent.harness.trace import Traces
from worldagent.harness.trace.index import TraceIndex
from worldagent.members import Society, load_workspace
from worldagent.members.data.roles import RoleStatus, TrustProfile
from worldagent.members.events.events import PostedEvent
from worldagent.members.events.recorded import Recorded, RecordedEvent, read_week, written
from worldagent.members.exporting import recorded
from worldagent.members.life.outcomes import Outcome, fold_outcomes
from worldagent.members.trying import Trial, try_week

pytestmark = pytest.mark.requirement("A23")


async def exported(home: Path) -> list[Recorded]:
    """The week of a home, as its file has it."""
    storage = Storage(home=home)
    async with aclosing(await Stores.open(storage)) as stores, aclosing(TraceIndex(storage.traces)) as index:
        return read_week(written(await recorded(stores, "vibe-team", Traces(index, "vibe-team"))), "week.jsonl")


Lived = tuple[Sequence[PostedEvent], dict[str, TrustProfile]]


def compare(trial: Trial, run: Lived) -> None:
    """What a trial says is what a run of its own gave: equal where it is sure, and one of what it says where not."""
    events, trust = run
    given = {each.event.id: each for each in events}
    for tried in trial.events:
        ran = given.pop(tried.event.id, None)
        if ran is None:
            assert tried.code == "unknown_member", tried
            continue
        assert (tried.member, tried.trail) == (ran.member, ran.trail)
        assert ran.decision in tried.decisions
        assert tried.result in ("unknown", ran.result or ran.state), tried
        assert tried.code in ("", ran.code)
    assert given == {}
    assert {*trial.members} == {*trust}
    for id_, profile in trust.items():
        low, high = trial.trust[id_]
        for name in {*profile.scores, *high.scores}:
            assert low.trust_for(name) <= profile.trust_for(name) <= high.trust_for(name), (id_, name)


@pytest.mark.parametrize("more", [{}, {"rejects": "Initech"}, {"fails": "Stark"}, {"tested": "bdr-amer"}])
async def test_a_week_with_its_own_file_gives_what_running_it_gave(tmp_path: Path, more: dict[str, str]) -> None:
    file = changed(tmp_path / "team.yaml")
    run = await lived(tmp_path / "home", file, **more)
    if more.get("tested"):  # code joins it, and the file does not name it
        begins, ends = file.read_text().index("  - role_id: bdr-amer"), file.read_text().index("role_templates:")
        file.write_text(file.read_text()[:begins] + file.read_text()[ends:])
    trial = try_week(load_workspace(file), await exported(tmp_path / "home"))
    assert [each.event.id for each in trial.events if each.differs] == []
    assert all(len(each.decisions) == 1 and each.result != "unknown" for each in trial.events)
    compare(trial, run)
    assert {id_: (each, each) for id_, each in run[1].items()} == dict(trial.trust)
    assert trial.asked[0] == trial.asked[1]
    assert (trial.asked[2], trial.costs[2]) == (0, 0)


_LEADS = "      - {event: lead.*, operator: qualify_lead, capability: qualify_lead}\n"
_OFFERS = "      - {event: deal.discount, operator: offer_discount"
_FORBIDDEN = "      forbidden: [offer_discount]\n    routes:\n"
_MEYER = "      - {event: deal.discount, operator: qualify_lead"
_CRO = "autonomous: [qualify_lead]\n      needs_approval: [offer_discount]"
_AMER = ["lead-globex", "lead-initech", "lead-wayne", "lead-stark"]
FILES: dict[str, tuple[tuple[str, str], list[str]]] = {
    "more trust": (("default: 0.1 #", "default: 0.5 #"), _AMER),
    "less authority": (
        (_CRO, "needs_approval: [qualify_lead, offer_discount]"),
        ["lead-acme", "lead-umbrella", "lead-nakatomi"],  # the last one by a member of the template
    ),
    "another owner of a domain": (("domains: [emea]", "domains: [emea, amer]"), [*_AMER, "lead-hooli"]),
    "another operator": (
        (_LEADS + _OFFERS, _LEADS.replace("operator: qualify_lead", "operator: offer_discount") + _OFFERS),
        ["lead-acme", "lead-umbrella"],
    ),
    "what was forbidden": ((_FORBIDDEN + _LEADS + _MEYER, "    routes:\n" + _LEADS + _MEYER), ["discount-meyer"]),
    "another spawner": (("allowed_spawners: [cro]", "allowed_spawners: [bdr-emea]"), ["apac", "lead-nakatomi"]),
    "too few places": (("max_roles: 20", "max_roles: 3"), ["apac", "lead-nakatomi"]),
    "spawns that wait": (("max_roles: 20", "spawn_requires_approval: true"), []),
    "less trust in members of a template": (
        ("allowed_spawners: [cro]", "allowed_spawners: [cro]\n    default_trust: 0.1"),
        ["lead-nakatomi"],
    ),
    "a domain that nobody had": (("domains: [emea]", "domains: [emea, marketing]"), ["press-acme", "press-globex"]),
}


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """The week of the example with its own file."""
    folder = tmp_path_factory.mktemp("week")

    async def live() -> list[Recorded]:
        await lived(folder / "home", changed(folder / "team.yaml"))
        return await exported(folder / "home")

    return asyncio.run(live())


@pytest.mark.parametrize("name", FILES)
async def test_another_file_gives_what_a_run_of_its_own_gives(tmp_path: Path, week: list[Recorded], name: str) -> None:
    change, differing = FILES[name]
    file = changed(tmp_path / "team.yaml", change)
    trial = try_week(load_workspace(file), week)
    assert [each.event.id for each in trial.events if each.differs] == differing
    compare(trial, await lived(tmp_path / "home", file))


def tried(week: list[Recorded], folder: Path, *changes: tuple[str, str]) -> Trial:
    return try_week(load_workspace(changed(folder / "team.yaml", *changes)), week)


def test_a_decision_that_depends_on_what_never_ran_is_shown_with_all_that_it_can_be(
    tmp_path: Path, week: list[Recorded]
) -> None:
    trial = tried(week, tmp_path, FILES["another operator"][0])
    acme, umbrella = (each for each in trial.events if each.event.id in ("lead-acme", "lead-umbrella"))
    assert (acme.result, acme.asked, acme.cost) == ("unknown", None, None)
    low, high = trial.trust["cro"]  # a bad run, or a good one, and then another one
    assert (low.trust_for("qualify_lead"), high.trust_for("qualify_lead")) == (0.15, 0.4)
    assert [(each.action, each.operator_id, each.monitoring) for each in umbrella.decisions] == [
        ("escalate", "offer_discount", "review"),
        ("delegate", "offer_discount", "report"),
    ]
    assert (trial.asked, trial.costs) == ((6, 5, 2), (0, 0, 2))


def test_what_a_person_would_be_asked_is_counted(tmp_path: Path, week: list[Recorded]) -> None:
    assert tried(week, tmp_path).asked == (6, 6, 0)
    assert tried(week, tmp_path, FILES["less authority"][0]).asked == (6, 8, 0)
    assert tried(week, tmp_path, FILES["spawns that wait"][0]).asked == (6, 7, 0)
    # What the policy of the agent asks about a run that only a person could release is not known.
    assert tried(week, tmp_path, FILES["more trust"][0]).asked == (6, 2, 4)


def test_events_that_nobody_decided_about_are_decided_about_last(tmp_path: Path) -> None:
    trial = tried(read_week((FOLDER / "week.jsonl").read_text(encoding="utf-8"), "week.jsonl"), tmp_path)
    assert [each.decisions[0].action for each in trial.events[:5]] == [
        *("delegate", "delegate", "escalate", "escalate", "escalate")
    ]
    assert [each.result for each in trial.events[:5]] == ["unknown", "unknown", "unknown", "unknown", "escalated"]
    assert not any(each.differs for each in trial.events)


def test_the_week_of_another_workspace_and_lines_of_other_files_are_refused(
    tmp_path: Path, week: list[Recorded]
) -> None:
    with pytest.raises(InvalidArgument, match="of the workspace 'vibe-team', and the file is of 'shop'"):
        tried(week, tmp_path, ("workspace: vibe-team", "workspace: shop"))
    for line, problem in {
        "No.": "line 2 of 'w': it is not JSON",
        "[]": "line 2 of 'w': an event must be a JSON object",
        '{"id": "e1"}': "line 2 of 'w': the event lacks `type`",
        '{"kind": "step", "at": 7}': "line 2 of 'w': `worldagent workspace events --export` writes no such line",
        '{"kind": "dream"}': "line 2 of 'w': `worldagent workspace events --export` writes no such line",
    }.items():
        with pytest.raises(InvalidArgument) as raised:
            read_week(f"\n{line}\n", "w")
        assert raised.value.problem.startswith(problem)


@pytest.mark.on_every_database
def test_lines_end_where_json_does_and_not_at_other_ends_of_lines(week: list[Recorded]) -> None:
    [posted, *_] = [each for each in week if isinstance(each, RecordedEvent)]
    strange = replace(posted, event=replace(posted.event, payload={"name": "Way\u2028ne\u2029 \x85"}))
    assert read_week(f"\ufeff{written([strange])}", "w") == [strange]


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"kind": "step", "at": "2026-01-01T00:00:00", "member": "cro", "status": "active"}',
        '{"kind": "sum", "member": "cro", "capability": "a", "shift": 1' + "0" * 400 + ', "low": 0, "high": 100}',
        '{"kind": "sum", "member": "cro", "capability": "a", "shift": 1, "low": 0, "high": 1000}',
    ],
    ids=["nested", "without a zone", "too much", "too high"],
)
def test_a_line_that_cannot_be_one_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(InvalidArgument, match="line 1 of 'w'"):
        read_week(line, "w")


async def test_lives_spawns_and_answers_without_an_event_are_replayed(tmp_path: Path) -> None:
    config = load_workspace(changed(tmp_path / "team.yaml"))
    storage, home = Storage(home=tmp_path / "home"), tmp_path / "home"
    async with aclosing(await Stores.open(storage)) as stores:
        society = Society(config, stores.database)
        await society.bootstrap()
        await society.spawn("cro", "bdr", {"territory": "APAC"}, message_id="event.gone.spawn")  # of an old event
        await society.outcomes.record(outcome("answer-1", "bdr-apac", "qualify_lead", succeeded=True))
        await society.outcomes.rate("answer-1", "bad")
        await society.suspend("bdr-emea")
        await society.join(replace(config.roles[2], role_id="trainee"), status=RoleStatus.DRAFT)
        await society.test("trainee")
        await society.terminate("cro")
        await society.create_role(template_of("clerk", "bdr-amer"))
        await society.spawn("bdr-amer", "clerk", {"name": "Ada"})
        trust = {each.id: each.trust for each in await society.members.members(config.id)}
    trial = try_week(config, week := await exported(home))
    assert {id_: each.life.status.value for id_, each in trial.members.items()} == {
        **{"cro": "terminated", "bdr-emea": "suspended", "bdr-amer": "active", "bdr-apac": "terminated"},
        **{"trainee": "testing", "ada": "active"},
    }
    assert {id_: trial.trust[id_] for id_ in trust} == {id_: (each, each) for id_, each in trust.items()}
    assert trial.asked == (0, 0, 0)
    assert trial.trust["bdr-apac"][0].trust_for("qualify_lead") == 0.15
    members = tried(week, tmp_path, ("allowed_spawners: [cro]", "allowed_spawners: [bdr-emea]")).members
    assert [*members] == ["cro", "bdr-emea", "bdr-amer", "trainee", "ada"]


def outcome(episode: str, member: str, capability: str, *, succeeded: bool) -> Outcome:
    given: dict[str, Any] = {"episode_id": episode, "role_id": member, "capability": capability}
    return Outcome(**given, succeeded=succeeded, at=datetime.now(UTC))


async def test_the_owner_rejects_a_spawn_that_waits_and_another_file_makes_it_at_once(tmp_path: Path) -> None:
    waits = ("max_roles: 20", "spawn_requires_approval: true")
    file = changed(tmp_path / "team.yaml", waits)
    async with aclosing(await Stores.open(Storage(home=tmp_path / "home"))) as stores:
        society = Society(load_workspace(file), stores.database)
        await society.bootstrap()
        await society.spawn("cro", "bdr", {"territory": "APAC"})
        await society.spawn("cro", "bdr", {"territory": "LATAM"})
        await society.reject_spawn("bdr-latam")
    trial = try_week(load_workspace(file), week := await exported(tmp_path / "home"))
    states = {id_: each.life.status.value for id_, each in trial.members.items()}
    assert (states["bdr-apac"], states["bdr-latam"], trial.asked) == ("draft", "terminated", (2, 2, 0))
    now = tried(week, tmp_path)
    states = {id_: each.life.status.value for id_, each in now.members.items()}
    assert (states["bdr-apac"], states["bdr-latam"], now.asked) == ("active", "active", (2, 0, 0))


@pytest.mark.on_every_database
async def test_outcomes_that_are_no_longer_kept_count_as_their_sum(tmp_path: Path) -> None:
    config = load_workspace(changed(tmp_path / "team.yaml"))
    async with aclosing(await Stores.open(Storage(home=tmp_path / "home"))) as stores:
        society = Society(config, stores.database)
        await society.bootstrap()
        await society.spawn("cro", "bdr", {"territory": "APAC"})
        for number in range(6):
            member = ("cro", "bdr-apac")[number % 2]
            await society.outcomes.record(outcome(f"a{number}", member, "qualify_lead", succeeded=True))
        until = datetime.now(UTC).timestamp()
        await society.outcomes.record(outcome("a6", "cro", "qualify_lead", succeeded=True))
        for member in ("cro", "bdr-apac"):
            await stores.database.transact(partial(fold_outcomes, workspace=config.id, role_id=member, before=until))
        assert len(await society.outcomes.list("cro")) == 1
    week = await exported(tmp_path / "home")
    trust = {id_: low.trust_for("qualify_lead") for id_, (low, _) in try_week(config, week).trust.items()}
    assert (trust["cro"], trust["bdr-apac"]) == (0.5, 0.45)
    assert tried(week, tmp_path, ("    reports_to: charles", "    trust: {default: 0.1}")).trust["cro"][1].trust_for(
        "qualify_lead"
    ) == pytest.approx(0.3)
