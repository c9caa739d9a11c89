"""However a turn waits, is resumed, cancelled, killed or drained: its roles are nowhere afterwards, nor meanwhile."""

from pathlib import Path

import pytest

from support.leak_cases import each_third
from support.leak_pauses import PATHS, Paused, PausedCase, every_paused_case, paused_sample
from support.leaks import watch
from worldagent.graphs.checkpoints import DURABILITY

SAMPLE = paused_sample()
REST = [case for case in every_paused_case() if case not in set(SAMPLE)]


async def check(case: PausedCase, home: Path) -> None:
    DURABILITY.set(case.mode)
    with watch(home) as seen:
        turn = Paused(case, home, seen)
        await PATHS[turn.case.path](turn)
    for text in turn.planted:
        assert text in turn.sent(), "the role never reached the model, so the case shows nothing"
    seen.assert_clean(*case.contents, names=case.labels)


@pytest.mark.requirement("R7", "R13", "R10")
@pytest.mark.parametrize("case", SAMPLE, ids=str)
async def test_a_role_is_nowhere_while_its_turn_waits_nor_after(tmp_path: Path, case: PausedCase) -> None:
    await check(case, tmp_path / "home")


@pytest.mark.requirement("R7", "R13", "R10")
@pytest.mark.parametrize("case", each_third(SAMPLE), ids=str)
@pytest.mark.parametrize("database_engine", ["postgres"], indirect=True)
async def test_a_role_is_in_no_table_while_its_turn_waits_nor_after(tmp_path: Path, case: PausedCase) -> None:
    await check(case, tmp_path / "home")


@pytest.mark.soak
@pytest.mark.parametrize("case", REST, ids=str)
async def test_a_role_is_nowhere_while_any_turn_waits_nor_after(tmp_path: Path, case: PausedCase) -> None:
    await check(case, tmp_path / "home")
