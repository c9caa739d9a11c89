"""What rules say of arguments, and policies in files: what they may say, and what is told of those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldagent.core.errors import PolicyInvalid
from worldagent.harness.gate import Policy, Predicate, Rule, load_policy

pytestmark = pytest.mark.requirement("H9")


def matches(said: Any, value: Any, decision: str = "approve") -> bool:
    rule = Rule.model_validate({"decision": decision, "arguments": {"x": said}})
    return rule.matches("f", ("write",), "critic", {"x": value})


@pytest.mark.parametrize(
    ("said", "value", "holds"),
    [
        ("notes/*", "notes/a", True),
        ("notes/*", "notes/a/b", True),
        ("notes/*", "notes/../etc", False),
        ("notes/*", "notes/a\nrm", False),
        ("notes/*", "notes/a\x00", False),
        ("notes/*", "notes/a\u2028", False),
        ("notes/*", "NOTES/a", False),
        ("notes/*", 5, False),
        ("plain", "plain", True),
        ("plain", "plainer", False),
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (1, 1.0, True),
        (None, None, True),
        (None, 0, False),
        (Predicate(equals={"a": [1]}), {"a": [1]}, True),
        (Predicate(equals=None), None, True),
        (Predicate(among=("a", 2)), 2, True),
        (Predicate(among=("a", 2)), "2", False),
        (Predicate(under="notes"), "notes", True),
        (Predicate(under="notes/"), "notes/a/../b", True),
        (Predicate(under="notes"), "notes/../b", False),
        (Predicate(under="notes"), "notesx/b", False),
        (Predicate(under="notes"), "/notes/b", False),
        (Predicate(under="/srv"), "/srv/a", True),
        (Predicate(under="/srv"), "srv/a", False),
        (Predicate(under="."), "a/b", True),
        (Predicate(under="."), "../a", False),
        (Predicate(under="."), "~/a", False),
        (Predicate(under="notes"), "notes\\..\\b", False),
        (Predicate(least=1, most=3), 2, True),
        (Predicate(least=1, most=3), 4, False),
        (Predicate(least=0), True, False),
        (Predicate(most=3), "2", False),
        (Predicate(longest=2), "ab", True),
        (Predicate(longest=2), [1, 2, 3], False),
        (Predicate(like="a*", longest=2), "abc", False),
        (Predicate(), "anything", False),
    ],
)
def test_what_is_said_of_an_argument_holds_or_does_not(said: Any, value: Any, holds: bool) -> None:
    assert matches(said, value) is holds


def test_arguments_are_found_by_dotted_paths_and_one_that_is_missing_matches_nothing() -> None:
    rule = Rule(decision="ask", arguments={"to.name": "ana"})
    assert rule.matches("f", ("write",), "c", {"to": {"name": "ana"}})
    assert rule.matches("f", ("write",), "c", {"to.name": "ana"})
    missing: list[dict[str, Any]] = [{}, {"to": "ana"}, {"to": {}}, {"to": {"name": None}}]
    for arguments in missing:
        assert not rule.matches("f", ("write",), "c", arguments)


@given(st.text(), st.sampled_from(["a/*", "a/**", "a?b", "a/[bc]*"]))
def test_no_wildcard_that_approves_lets_a_path_climb_or_a_line_end(value: str, glob: str) -> None:
    for worse in (f"a/{value}/../x", f"a/../{value}", f"a/{value}\n", f"a/\r{value}"):
        assert not matches(glob, worse)


def test_risks_of_a_rule_that_approves_must_cover_those_of_the_function() -> None:
    approve, refuse = Rule(decision="approve", risk="write"), Rule(decision="refuse", risk="write")
    assert approve.matches("f", ("write",), "c", {})
    assert not approve.matches("f", ("write", "network"), "c", {})
    assert refuse.matches("f", ("write", "network"), "c", {})
    assert not refuse.matches("f", ("network",), "c", {})


FILE = """\
# who may do what
version: 1
default: refuse
times: 5
rules:
  - name: notes
    decision: approve
    function: [write_*, edit_file]
    arguments:
      path: {under: notes}
    times: 3
  - {decision: ask, risk: destructive, approvers: ana}
"""


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(FILE)
    assert load_policy(file) == Policy(
        default="refuse",
        times=5,
        rules=(
            Rule(
                name="notes",
                decision="approve",
                function=("write_*", "edit_file"),
                arguments={"path": Predicate(under="notes")},
                times=3,
            ),
            Rule(decision="ask", risk="destructive", approvers="ana"),
        ),
    )
    other = tmp_path / "policy.json"
    other.write_text('{"rules": [{"decision": "ask"}]}')
    assert load_policy(other) == Policy(rules=(Rule(decision="ask"),))


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("rules:\n  - decision: maybe\n", ":2", "decision"),
        ("rules:\n  - decision: ask\n    colour: red\n", ":3", "'colour'"),
        ("rules:\n  - ask\n", ":2", "no rule"),
        ("rules: ask\n", ":1", "no list"),
        ("rule: []\n", ":1", "'rule'"),
        ("version: 2\n", ":1", "version 2"),
        ("version: true\n", ":1", "version True"),
        ("default: approve\n", ":1", "default"),
        ("- decision: ask\n", "", "no policy"),
        ("", "", "no policy"),
        ("rules:\n  - decision: ask\n    function: &a x\n", ":3", "anchors"),
        ("rules: !!python/object:os.system x\n", ":1", "tags"),
        ("default: ask\ndefault: refuse\n", ":2", "duplicate"),
        ("rules: [\n", ":2", "cannot be read"),
        ("rules:\n  - decision: approve\n    after: fetch\n", ":2", "after= alone"),
        ("rules:\n  - {name: a, decision: ask}\n  - {name: a, decision: ask}\n", "", "two rules are called 'a'"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_line(tmp_path: Path, text: str, where: str, problem: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(PolicyInvalid) as caught:
        load_policy(file)
    assert f"policy.yaml{where}" in caught.value.problem
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_file_that_is_not_there_or_no_text_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(PolicyInvalid, match="No such file"):
        load_policy(tmp_path / "none.yaml")
    with pytest.raises(PolicyInvalid, match="directory"):
        load_policy(tmp_path)
    (tmp_path / "x.yaml").write_bytes(b"rules: []\n\xff")
    with pytest.raises(PolicyInvalid, match=r"x\.yaml:2 is not UTF-8"):
        load_policy(tmp_path / "x.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(PolicyInvalid, match="bytes"):
        load_policy(tmp_path / "big.yaml")
