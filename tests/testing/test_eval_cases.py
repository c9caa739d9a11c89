"""Files of cases: YAML and JSON Lines, ids that are made of messages, and errors with file, line and remedy."""

import json
from pathlib import Path

import pytest

from worldagent import Role
from worldagent.core.errors import EvalInvalid, InvalidArgument
from worldagent.testing import EvalCase, read_cases

YAML = """
- message: What is the capital of France?
  expected: Paris
- id: pirate
  message: Who goes there?
  role: Answer like a pirate.
  expected: [arr, "who"]
  metric: contains
  tags: [style, short]
"""


def test_yaml_and_json_lines_give_the_same_cases(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(YAML)
    lines = [
        {"message": "What is the capital of France?", "expected": "Paris"},
        {
            "id": "pirate",
            "message": "Who goes there?",
            "role": "Answer like a pirate.",
            "expected": ["arr", "who"],
            "metric": "contains",
            "tags": ["style", "short"],
        },
    ]
    (tmp_path / "cases.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    (tmp_path / "cases.json").write_text(json.dumps(lines))
    first, second = cases = read_cases(tmp_path / "cases.yaml")
    assert (first.id, first.expected, first.role) == ("what-is-the-capital-of-france", "Paris", None)
    assert (second.id, second.tags, second.metric) == ("pirate", ("style", "short"), "contains")
    assert second.role == Role("case", "Answer like a pirate.")
    assert "pirate." not in repr(second)
    assert read_cases(str(tmp_path / "cases.jsonl")) == read_cases(tmp_path / "cases.json") == cases


def test_ids_are_made_of_messages_and_differ(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    messages = ["Hello, world!", "hello world", "???", "Was ist größer?", "very " * 30]
    file.write_text("".join(f"- message: '{each}'\n" for each in messages))
    found = [str(case) for case in read_cases(file)]
    assert found == ["hello-world", "hello-world-2", "case", "was-ist-größer", "-".join(["very"] * 9)]


BAD = {
    "empty": ("cases.yaml", "", "cases.yaml: the file has no cases; begin each case with '- message:'"),
    "no list": ("cases.yaml", "message: Hello", "cases.yaml:1: the file must be a list of cases"),
    "no object": ("cases.yaml", "- Hello", "cases.yaml:1: a case must be an object with a message"),
    "no message": ("cases.yaml", "- expected: x", "cases.yaml:1: a case must have a message"),
    "blank": ("cases.yaml", "- message: a\n- message: ' '", "cases.yaml:2: `message` must be a text with more than"),
    "number": ("cases.yaml", "- message: 4", "in quotes where it looks like something else"),
    "unknown key": ("cases.yaml", "- message: a\n  expcted: b", "cases.yaml:2: a case has no key 'expcted'; did you "),
    "same id": ("cases.yaml", "- {message: a, id: x}\n- {message: b, id: x}", "cases.yaml:2: another case has the id"),
    "tags": ("cases.yaml", "- message: a\n  tags: geo", "cases.yaml:2: `tags` must be a list"),
    "tag": ("cases.yaml", "- message: a\n  tags: [3]", "cases.yaml:2: `tags` must be a list of names"),
    "role": ("cases.yaml", "- message: a\n  role: ''", "cases.yaml:2: `role` must be a text with more than blanks"),
    "long id": ("cases.yaml", f"- message: a\n  id: {'x' * 81}", "cases.yaml:2: `id` must be 1 to 80"),
    "not YAML": ("cases.yaml", "- message: [a", "cases.yaml:1 cannot be read"),
    "no line": ("cases.jsonl", "\n", "cases.jsonl:1: the file has no cases"),
    "not JSON": ("cases.jsonl", '{"message": "a"}\n\n{"message"', "cases.jsonl:3: the line is not JSON"),
    "twice": ("cases.jsonl", '{"message": "a", "message": "b"}', "cases.jsonl:1: the key 'message' is there twice"),
    "surrogate": ("cases.jsonl", '{"message": "a", "expected": "\\ud800"}', "cases.jsonl:1: `expected` must be JSON"),
    "name": ("cases.txt", "- message: a", "write cases as YAML (.yaml, .yml, .json) or as JSON Lines (.jsonl)"),
}


@pytest.mark.parametrize("wrong", BAD)
def test_a_file_with_an_error_is_refused_with_its_line(tmp_path: Path, wrong: str) -> None:
    name, content, says = BAD[wrong]
    (tmp_path / name).write_text(content)
    with pytest.raises(EvalInvalid) as caught:
        read_cases(tmp_path / name)
    assert says in str(caught.value).replace(f"{tmp_path}/", "")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvalInvalid, match=r"cases.yaml' cannot be read: No such file"):
        read_cases(tmp_path / "cases.yaml")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"message": ""}, "`message` must be a text"),
        ({"message": "a", "role": "Be kind."}, "`role` must be a Role or None, got a str"),
        ({"message": "a", "tags": "geo"}, "`tags` must be a list"),
        ({"message": "a", "metric": 3}, "`metric` must be a name or a function"),
        ({"message": "a", "expected": object()}, "`expected` must be JSON"),
    ],
)
def test_a_case_in_code_is_checked(given: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        EvalCase(**given)  # type: ignore[arg-type]  # that is the test
