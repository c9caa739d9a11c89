"""What rules say of arguments, and policies in files: what they can say, and errors of invalid ones."""

import os
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
        (Predicate(under="/"), "//a", False),
        (Predicate(under="//srv"), "/srv/a", True),
        (Predicate(under="."), "C:/a", False),
        (Predicate(equals={"a": [1]}), {"a": [True]}, False),
    ],
)
def test_condition_on_an_argument(said: Any, value: Any, holds: bool) -> None:
    assert matches(said, value) is holds


UNSURE = [
    ("*", "a\n"),
    ("*", "../x"),
    ("*", 5),
    ("*", True),
    ("*", ["a"]),
    ("*", {"a": "b"}),
    ("*.secret", "../a.secret"),
    ("*.secret", "x\n.secret"),
    ("*.secret", "a.secret\n"),
    ("*.secret", "a.secret\nb"),
    ("*.secret", "a.sec\x00ret"),
    ("*.secret", "a.secret/."),
    ("*.secret", ["a", "b.secret"]),
    ("*.secret", {"path": "b.secret"}),
    ("etc/*", "notes/../etc/x"),
    ("etc/*", "notes\\..\\etc\\x"),
    ("etc/*", "../app/etc/x"),
    ("etc/*", "./etc/x"),
    ("etc/x", "notes/../etc/x"),
    ("etc/x", "etc/x\r"),
    ("etc/x", "etc\\x"),
    ("rm *", "ls\nrm -rf ."),
    (True, 1),
    (1, True),
    (1, "1"),
    (5, [1, 5]),
    (Predicate(like="*.secret"), "../a.secret"),
    (Predicate(equals="x"), ["x"]),
    (Predicate(among=("x", 2)), "2"),
    (Predicate(under="secrets"), "secrets/a\x00"),
    (Predicate(under="secrets"), "secrets\n/a"),
    (Predicate(under="secrets"), "secrets\\a"),
    (Predicate(under="secrets"), "~/app/secrets/a"),
    (Predicate(under="secrets"), "../app/secrets/a"),
    (Predicate(under="secrets"), "/srv/secrets/a"),
    (Predicate(under="secrets"), "C:/srv/secrets/a"),
    (Predicate(under="secrets"), ["a", "secrets/b"]),
    (Predicate(under="/etc"), "etc/passwd"),
    (Predicate(under="/etc"), "//etc/passwd"),
    (Predicate(least=100), "1000"),
    (Predicate(least=100), [1, 100]),
    (Predicate(most=5), True),
    (Predicate(under="secrets", longest=3), ["secrets\n/a"]),
]


@pytest.mark.parametrize(("said", "value"), UNSURE)
@pytest.mark.parametrize("decision", ["ask", "refuse"])
def test_what_may_be_meant_is_asked_for_and_refused_and_not_approved(said: Any, value: Any, decision: str) -> None:
    assert matches(said, value, decision)
    assert not matches(said, value, "approve")


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("*.secret", "notes.md\n"),
        ("*.secret", "a.public"),
        ("*", None),
        ("etc/*", "notes/../a"),
        ("etc/*", ["notes/a", 5, None]),
        (True, False),
        (None, 0),
        (5, "6"),
        (Predicate(under="secrets"), "public/../a"),
        (Predicate(under="secrets"), "secrets/../a"),
        (Predicate(under="/etc"), "/srv/a"),
        (Predicate(least=100), "99"),
        (Predicate(least=100), None),
        (Predicate(least=100), "many"),
        (Predicate(longest=2), "abc"),
    ],
)
@pytest.mark.parametrize("decision", ["ask", "refuse", "approve"])
def test_what_cannot_be_meant_is_of_no_rule(said: Any, value: Any, decision: str) -> None:
    assert not matches(said, value, decision)


GLOBS = st.sampled_from(["*", "a*", "*z", "a*z", "[ab]*", "a?*"])
TAMED = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="."))


@given(st.lists(TAMED), GLOBS)
def test_refusing_rule_matches_what_an_approving_one_does(pieces: list[str], glob: str) -> None:
    value = f"a{'/'.join(pieces)}z"
    assert matches(glob, value)
    assert matches(glob, value, "refuse")
    assert matches(glob, value, "ask")


@given(st.text(), st.text(), GLOBS)
def test_climbing_path_matches_only_wildcards_that_refuse(start: str, end: str, glob: str) -> None:
    value = f"a{start}/../{end}z"
    assert not matches(glob, value)
    assert matches("*", value, "refuse")
    assert matches("a*z", value, "ask")


def test_a_rule_that_refuses_looks_into_lists_on_the_way() -> None:
    to = {"to": [{"name": "ana"}, {"name": "eve"}]}
    for decision, found in (("refuse", True), ("ask", True), ("approve", False)):
        rule = Rule.model_validate({"decision": decision, "arguments": {"to.name": "eve"}})
        assert rule.matches("f", ("write",), "c", to) is found
    both = {"to.name": "ana", "to": {"name": "eve"}}
    assert Rule(decision="refuse", arguments={"to.name": "eve"}).matches("f", ("write",), "c", both)


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
expires: 3600
rules:
  - name: notes
    decision: approve
    function: [write_*, edit_file]
    arguments:
      path: {under: notes}
    times: 3
  - {decision: ask, risk: destructive, approvers: ana, expires: 60}
"""


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(FILE)
    assert load_policy(file) == Policy(
        default="refuse",
        times=5,
        expires=3600,
        rules=(
            Rule(
                name="notes",
                decision="approve",
                function=("write_*", "edit_file"),
                arguments={"path": Predicate(under="notes")},
                times=3,
            ),
            Rule(decision="ask", risk="destructive", approvers="ana", expires=60),
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
        ("rules:\n  - ask\n", ":2", "a rule must be a mapping"),
        ("rules: ask\n", ":1", "`rules` must be a list"),
        ("rule: []\n", ":1", "'rule'"),
        ("version: 2\n", ":1", "version 2"),
        ("version: true\n", ":1", "version True"),
        ("default: approve\n", ":1", "default"),
        ("- decision: ask\n", "", "a policy must be a mapping"),
        ("", "", "a policy must be a mapping"),
        ("rules:\n  - decision: ask\n    function: &a x\n", ":3", "anchors"),
        ('rules:\n  - decision: ask\n    function: "\\UFFFFFFFF"\n', ":3", "there is no such character"),
        ("rules: !!python/object:os.system x\n", ":1", "tags"),
        ("default: ask\ndefault: refuse\n", ":2", "duplicate"),
        ("rules: [\n", ":2", "cannot be read"),
        ("rules:\n  - decision: approve\n    after: fetch\n", ":2", "approves with after= but without"),
        ("rules:\n  - {name: a, decision: ask, function: f}\n  - {name: a, decision: ask}\n", ":3", "named 'a'"),
        ("rules:\n  - {decision: ask}\n  - {decision: refuse}\n", ":3", "is never used"),
        ("rules:\n  - {decision: ask, function: []}\n", ":2", "function: it is empty"),
        ("rules:\n  - {decision: ask, arguments: {n: {among: 3}}}\n", ":2", "arguments: n: among: Input should"),
        (
            "rules:\n  - {decision: ask, arguments: {n: {orgin: person}}}\n",
            ":2",
            "n: there is no predicate 'orgin'; did you",
        ),
        ("rules:\n  - {decision: ask, arguments: {n: {each: {a: 1}}}}\n", ":2", "the predicates are: equals, among"),
        ("rules:\n  - <<: {decision: approve}\n", ":2", "'<<'"),
    ],
)
def test_unreadable_file_is_named_with_its_line(tmp_path: Path, text: str, where: str, problem: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(PolicyInvalid) as caught:
        load_policy(file)
    assert f"policy.yaml{where}" in caught.value.problem
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_text_with_a_colon_needs_quotes_in_a_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("rules:\n  - name: as it is: now\n")
    with pytest.raises(
        PolicyInvalid, match="mapping values are not allowed here; put the text behind the key in quotes"
    ):
        load_policy(tmp_path / "policy.yaml")


def test_missing_or_binary_file_is_named(tmp_path: Path) -> None:
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
    for none in (None, 3, b"x", "a\0b"):
        with pytest.raises(PolicyInvalid, match="not a path"):
            load_policy(none)  # type: ignore[arg-type]  # it is wrong


@pytest.mark.timeout(20)
def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for endless in (tmp_path / "pipe.yaml", Path("/dev/zero")):
        with pytest.raises(PolicyInvalid, match="not a regular file"):
            load_policy(endless)
