"""How many events a second are decided on one core, and whether members, routes and payloads change that.

Run `python benchmarks/routing.py [--quick] [--json]`. It prints a table and one JSON line; README.md explains both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import cycle, islice

from worldagent.benchmarks._measure import Report, Row, Work, interleaved, main
from worldagent.members import AuthorityConfig, Event, RoleSpec, Route, WorkspaceConfig
from worldagent.members.data.roles import RoleStatus
from worldagent.members.events.routing import Roster, route
from worldagent.members.life.members import Member, new_member

_MEMBERS = 1_000
_DECISIONS = 1_000  # of a call
_ROUTES = 20
_DOMAINS = 50
_AIM = 100_000  # decisions a second
_FLAT = 1.3
_NOW = datetime(2026, 3, 1, tzinfo=UTC)
_CONFIG = WorkspaceConfig(id="w", owner="o")

Case = tuple[Member, Event]


def crowd(count: int, routes: int = 4) -> Roster:
    """A roster whose members have one domain and some routes each; the last route is that of `lead.created`."""
    patterns = [f"deal.{number}.*" for number in range(routes - 1)] + ["lead.*"]
    spec = {
        "workspace": "w",
        "soul": "You are a member.",
        "reports_to": "",
        "operator_ids": ("ops",),
        "authority": AuthorityConfig(autonomous=("qualify",), needs_approval=("price",), forbidden=("lead.sign",)),
        "routes": tuple(Route(event=each, operator="ops", capability="qualify") for each in patterns),
    }
    members = [
        new_member(
            RoleSpec(role_id=f"m{number}", domains=(f"d{number % _DOMAINS}",), **spec),  # type: ignore[arg-type] # its fields
            "",
            None,
            RoleStatus.ACTIVE,
            _NOW,
            _CONFIG.policy,
        )
        for number in range(count)
    ]
    return Roster.of(_CONFIG, members)


def event(kind: str, domain: str, payload: int = 100) -> Event:
    return Event(id="e", type=kind, source="crm", domain=domain, payload={"text": "x" * payload}, timestamp=_NOW)


def cases(roster: Roster, kinds: Sequence[str], payload: int = 100) -> list[Case]:
    """Members and events: `own` runs the operator, `other` is of another domain, `unrouted` has no operator."""
    chosen, members = random.Random(5), list(roster.members.values())
    found = []
    for kind in islice(cycle(kinds), _DECISIONS):
        member = chosen.choice(members)
        domain = member.spec.domains[0] if kind != "other" else f"d{(int(member.spec.domains[0][1:]) + 1) % _DOMAINS}"
        found.append((member, event("note.added" if kind == "unrouted" else "lead.created", domain, payload)))
    return found


def deciding(roster: Roster, given: Sequence[Case]) -> Work:
    async def decide() -> None:
        for member, happened in given:
            route(member, happened, roster)

    return decide


def looking_up(given: Sequence[Case]) -> Work:
    """The floor: one look-up in a dictionary for each event, without a decision."""
    table = {(member.id, happened.type): happened for member, happened in given}

    async def look_up() -> None:
        for member, happened in given:
            table[member.id, happened.type]

    return look_up


async def run(report: Report) -> None:
    """Measure everything, in the order of README.md."""
    rounds, calls = (1, 1) if report.quick else (9, 20)
    roster, large, routed = crowd(_MEMBERS), crowd(10 * _MEMBERS), crowd(_MEMBERS, _ROUTES)
    mixed = ("own", "own", "other", "unrouted")

    async def build() -> None:
        Roster.of(_CONFIG, roster.members.values())

    work = {
        "floor": looking_up(cases(roster, mixed)),
        "mixed": deciding(roster, cases(roster, mixed)),
        **{kind: deciding(roster, cases(roster, [kind])) for kind in ("own", "other", "unrouted")},
        "large": deciding(large, cases(large, mixed)),
        "payload": deciding(roster, cases(roster, ["own"], 50_000)),
        "routed": deciding(routed, cases(routed, ["own"])),
        "build": build,
    }
    costs = await interleaved(work, rounds=rounds, calls=calls)
    rows = [
        Row(key="routing_per_second", value=_DECISIONS / costs.cpu("mixed"), unit="/s", least=_AIM),
        Row(key="routing_over_lookup", value=costs.cpu_ratio("mixed", "floor")),
        *(
            Row(key=f"routing_{name}_us", value=costs.cpu(kind) / _DECISIONS * 1e6, unit="us")
            for kind, name in (("own", "delegate"), ("other", "forward"), ("unrouted", "escalate"))
        ),
        Row(key="routing_members_x10", value=costs.cpu_ratio("large", "mixed"), aim=_FLAT),
        Row(key="routing_payload_x500", value=costs.cpu_ratio("payload", "own"), aim=_FLAT),
        Row(key="routing_routes_x5", value=costs.cpu_ratio("routed", "own")),
        Row(key="routing_roster_ms", value=costs.cpu("build") * 1000, unit="ms"),
    ]
    report.section(f"decisions of {_MEMBERS:,} members", rows)


if __name__ == "__main__":
    main("routing", "How many events a second are decided.", run)
