"""The manifest of requirements and the marks of the tests agree, both ways."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.house import shipped_modules

TESTS = Path(__file__).parents[1]
MANIFEST = Path(__file__).with_name("requirements.toml")
COUNTS = {"R": 19, "T": 20, "H": 11, "P": 6, "M": 5, "A": 23, "C": 11}
CRITERIA = (5, 8, 8, 4, 7, 5, 6, 5, 5, 6)
"""How many acceptance criteria each of the requirements C1 to C10 has."""
RULES = (1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 16, 18, 19, 21)
"""The rules of the design that code points to."""
STATES = {"tested", "partial", "not yet", "rule"}

Rows = Mapping[str, Mapping[str, str]]


def marks_in(source: str, where: str = "source") -> Iterator[tuple[str, str]]:
    """Yield each number that a `pytest.mark.requirement(...)` in `source` names, with its place.

    On functions, on classes, in `pytestmark` and in the `marks=` of a parameter alike. What is not a literal comes out
    as its source text, which no manifest knows.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
            for argument in node.args:
                literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                yield str(ast.literal_eval(argument)) if literal else ast.unparse(argument), f"{where}:{node.lineno}"


def disagreements(rows: Rows, marks: Mapping[str, str]) -> list[str]:
    """Say where `rows` and `marks` (number to one place that names it) do not fit."""
    found = [f"{place} marks {number!r}, which is not a row" for number, place in marks.items() if number not in rows]
    for number, row in rows.items():
        if row["state"] in ("not yet", "rule") and number in marks:
            found.append(
                f"{number} is {row['state']!r}, and {marks[number]} shows it: change its state in {MANIFEST.name}"
            )
        if row["state"] not in ("not yet", "rule") and number not in marks:
            found.append(f"{number} is {row['state']!r}, and no test carries it")
    return found


def manifest() -> Rows:
    return tomllib.loads(MANIFEST.read_text(encoding="utf-8"))


def marks_of_all_tests() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("*.py")):
        if path != Path(__file__):
            for number, place in marks_in(path.read_text(encoding="utf-8"), str(path.relative_to(TESTS))):
                found.setdefault(number, place)
    return found


def test_every_number_stands_in_the_manifest_once_and_no_other() -> None:
    rows = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    criteria = [f"C{row}.{number}" for row, count in enumerate(CRITERIA, 1) for number in range(1, count + 1)]
    assert list(manifest()) == rows + criteria + [f"D{number}" for number in RULES]


def test_every_number_that_code_points_to_is_on_the_page_of_requirements() -> None:
    known = manifest()
    for path in (*shipped_modules(), *TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        pointers = [
            each for words in re.findall(r"\(((?:[A-Z]\d+(?:\.\d+)?(?:, )?)+)\)", text) for each in words.split(", ")
        ]
        assert [each for each in pointers if each not in known] == [], path
        assert re.findall(r"(?<![\w.,])00[0-4](?:'s| \d|/\d|[):])", text) == [], f"{path} points to what no reader has"


def test_every_row_says_what_it_is_about_and_how_far_it_is_shown() -> None:
    for number, row in manifest().items():
        assert row["about"], number
        assert row["state"] in STATES, number
        assert set(row) == ({"about", "state", "missing"} if row["state"] == "partial" else {"about", "state"}), number


def test_rows_and_marks_agree() -> None:
    found = disagreements(manifest(), marks_of_all_tests())
    assert not found, "\n".join(found)
