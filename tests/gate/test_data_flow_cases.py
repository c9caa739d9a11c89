"""Each attack on a guarded clerk is stopped by one check, and succeeds without it (H11)."""

from pathlib import Path

import pytest

from gate.data_flow_cases import CASES, Desk
from support.attacks import shows_its_check

pytestmark = pytest.mark.requirement("H11")


@pytest.mark.parametrize("name", CASES)
async def test_attack_succeeds_unless_the_check_stops_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]

    async def succeeds(place: str, *, guard: bool) -> bool:
        desk = Desk(case, guard=guard)
        await case.run(desk, tmp_path / place)
        return case.effect(desk)

    await shows_its_check(succeeds, case.check, monkeypatch)
