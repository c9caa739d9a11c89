"""Each attack on a guarded clerk is stopped by one check, and succeeds without it (H11)."""

from pathlib import Path

import pytest

from gate.data_flow_cases import CASES, Case, Desk

pytestmark = pytest.mark.requirement("H11")


async def succeeds(case: Case, home: Path, *, guard: bool) -> bool:
    """Whether the attack of a case succeeds."""
    desk = Desk(case, guard=guard)
    await case.run(desk, home)
    return case.effect(desk)


@pytest.mark.parametrize("name", CASES)
async def test_attack_succeeds_unless_the_check_stops_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    assert await succeeds(case, tmp_path / "off", guard=False), "it does not succeed where the clerk is not guarded"
    assert not await succeeds(case, tmp_path / "on", guard=True), "it succeeds although the clerk is guarded"
    case.check.apply(monkeypatch)
    assert await succeeds(case, tmp_path / "mutant", guard=True), f"it is stopped without {case.check}"
