"""What others rely on changes on purpose: the files in `tests/golden` say what it is."""

import difflib

import pytest

from support.golden import FILES, FOLDER, PAGE, page


@pytest.mark.parametrize("name", FILES)
def test_what_others_rely_on_is_as_the_golden_file_says(name: str) -> None:
    known, found = (FOLDER / name).read_text(encoding="utf-8").splitlines(), FILES[name]().splitlines()
    changes = "\n".join(difflib.unified_diff(known, found, "golden", "now", lineterm="", n=1))
    assert not changes, f"{changes[:4000]}\nif that is meant: PYTHONPATH=.dev:tests python -P tests/support/golden.py"


def test_the_page_of_commands_is_as_the_program_has_them() -> None:
    found = PAGE.read_text(encoding="utf-8")
    assert found == page(), "run PYTHONPATH=.dev:tests python -P tests/support/golden.py"
