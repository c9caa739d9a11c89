"""The schema for editors and the loader take the same documents (P1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from worldagent.profiles.catalogue import BUILTIN_FOLDER
from worldagent.profiles.files import profile_schema, read_profile
from worldagent.profiles.profile import MemoryOverrides, Profile, Skills, Verification

FILE: Final = Path("mine.yaml")
SCHEMA: Final = Draft202012Validator(profile_schema())

words = st.text("abcXYZ019_-. /*", max_size=12)
edges = st.one_of(
    st.integers(-2, 12), st.integers(990, 1010), st.floats(-1, 12, allow_nan=False), st.sampled_from([1e3, 10**30])
)
junk: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), edges, words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)


def mostly(fitting: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] = junk) -> st.SearchStrategy[Any]:
    """What fits, and now and then what may not: so seldom that many documents are whole."""
    return st.integers(0, 39).flatmap(lambda number: odd if number == 39 else fitting)


def mapping(keys: dict[str, st.SearchStrategy[Any]], required: tuple[str, ...] = ()) -> st.SearchStrategy[Any]:
    """Some of the keys; now and then one that there is not, or no mapping."""
    needed = {key: keys[key] for key in required}
    optional = {key: value for key, value in keys.items() if key not in required}
    known = st.fixed_dictionaries(needed, optional=optional)
    return mostly(known, st.one_of(junk, st.builds(lambda said, key, value: said | {key: value}, known, words, junk)))


texts = mostly(words)
filled = mostly(words.filter(bool), words)
switch = mostly(st.booleans())
name = mostly(st.sampled_from(["a", "A_b-0", "x" * 64]), st.sampled_from(["", "a b", "x" * 65, "é", "a.b", 5, None]))
whole = mostly(st.sampled_from([1, 2, 10, 3.0]), st.one_of(edges, junk))
count = mostly(st.sampled_from([1, 1000, 50.0, None]), st.one_of(edges, junk))
part = mostly(st.sampled_from([1, 0.3, 1.0, None]), st.one_of(edges, junk))
seconds = mostly(st.sampled_from([1, 0.3, 86400]), st.one_of(edges, junk))
limits = {"timeout": seconds, "output_limit": mostly(st.sampled_from([1000, 2000, 5000.0]), st.one_of(edges, junk))}
entry = {
    "args": mostly(st.lists(words, max_size=3)),
    "env": mapping({"A": texts}),
    "prefix": mostly(st.sampled_from(["", "a_", "A.b-", None]), st.sampled_from(["0a", "a b", "x" * 33, 5])),
    "allow": mostly(st.lists(filled, max_size=3)),
    "risk": mapping(
        {"a*": mostly(st.sampled_from(["read_only", ["write", "destructive"]]), st.sampled_from(["big", 5]))}
    ),
    "trust_annotations": switch,
    "timeout": seconds,
    "result_limit": whole,
    "type": mostly(st.sampled_from(["stdio", "http", None]), st.sampled_from(["sse", 5])),
    "cwd": texts,
}
program = mostly(st.sampled_from(["server", "a b", "/bin/x"]), st.sampled_from(["", None, 5, []]))
address = mostly(
    st.sampled_from(["https://shop.example/mcp", "http://localhost:80"]),
    st.sampled_from(["ftp://shop.example", "shop", "http://", "http://a:b@c/", None, 5]),
)
server = mostly(
    st.one_of(mapping(entry | {"command": program}, ("command",)), mapping(entry | {"url": address}, ("url",))),
    mapping(entry | {"command": program, "url": address}),
)
documents = mapping(
    {
        "profile": mostly(st.sampled_from([1, 1.0]), st.sampled_from([2, "1", True, None])),
        "name": name,
        "description": texts,
        "extends": name,
        "system_prompt": mostly(st.one_of(filled, st.none())),
        "tools": mostly(st.one_of(st.lists(filled, max_size=4), st.none())),
        "sections": mostly(st.sampled_from(["auto", "all"]), st.sampled_from(["some", None, True])),
        "agents_md": switch,
        "memory": mapping(
            {
                "short_term_size": count,
                "compression_threshold": count,
                "compression_ratio": part,
                "strategy": mostly(
                    st.sampled_from(["sliding_window", "selective", None]), st.sampled_from(["best", 5])
                ),
                "long_term_memory": switch,
            }
        ),
        "skills": mapping({"enabled": switch}),
        "verification": mapping({"enabled": switch, "max_iterations": whole}),
        "tool_settings": mapping(
            {
                "shell": mapping(limits),
                "read_file": mapping({"output_limit": whole}),
                "web_search": mostly(mapping({"timeout": seconds}), mapping(limits)),
            }
        ),
        "mcp_servers": mostly(st.dictionaries(mostly(st.sampled_from(["a", "b.c"]), st.just("")), server, max_size=2)),
    }
)


@pytest.mark.requirement("P1")
@given(documents)
def test_the_schema_takes_what_the_loader_takes(said: Any) -> None:
    file = read_profile(FILE, json.dumps(said).encode())
    taken = SCHEMA.is_valid(said)
    event(f"taken: {taken}")
    assert (not file.problems) == taken, (said, file.problems)
    for problem in file.problems:  # each has its line, and what to do
        assert problem.problem.startswith("mine.yaml:1")
        assert problem.remedy


@pytest.mark.parametrize("file", sorted(BUILTIN_FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_schema_takes_the_profiles_that_ship(file: Path) -> None:
    from worldagent.core.errors import ProfileInvalid
    from worldagent.harness.yaml import read_yaml

    assert SCHEMA.is_valid(read_yaml(file.read_bytes(), name=str(file), error=ProfileInvalid).data)


def test_the_schema_is_one_and_has_every_key_of_a_profile_with_its_words() -> None:
    schema = profile_schema()
    Draft202012Validator.check_schema(schema)
    keys = {*schema["properties"]} - {"profile", "extends"}
    assert keys == {*Profile.__dataclass_fields__} - {"_", "sources"}
    parts = (("MemoryKeys", MemoryOverrides), ("SkillsKeys", Skills), ("VerificationKeys", Verification))
    for called, kind in parts:
        assert {*schema["$defs"][called]["properties"]} == {*kind.__dataclass_fields__}
        for key, said in schema["$defs"][called]["properties"].items():
            assert said["description"]
            assert said.get("default") == kind.__dataclass_fields__[key].default
