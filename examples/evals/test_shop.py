"""The cases as tests: one each, and a bound for all of them. Needs pytest and pytest-asyncio."""

from pathlib import Path

import pytest
from shop import agent

from worldagent.testing import EvalCase, evaluate, read_cases

CASES = read_cases(Path(__file__).with_name("cases.yaml"))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDAGENT_HOME", str(tmp_path))


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_case(case: EvalCase) -> None:
    async with agent() as shop:
        (await evaluate(shop, [case])).assert_score(1.0)


async def test_all_cases() -> None:
    async with agent() as shop:
        (await evaluate(shop, CASES, repeat=2)).assert_score(0.9)
