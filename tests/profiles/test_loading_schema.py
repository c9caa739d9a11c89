"""The schema for editors and the loader take the same documents (P1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from worldagent.core.errors import ProfileInvalid
from worldagent.harness.yaml import read_yaml
from worldagent.profiles.catalogue import BUILTIN_FOLDER
from worldagent.profiles.files import profile_schema, read_profile
from worldagent.profiles.profile import MemoryOverrides, Profile, Skills, Verification

SCHEMA: Final = Draft202012Validator(profile_schema())
SERVER: Final = {"command": "server"}
FITTING: list[tuple[str, Any]] = [
    ("profile", 1.0),
    ("name", "A_b-0"),
    ("system_prompt", None),
    ("tools", ["a.*", "b"]),
    ("memory", {"short_term_size": 50.0, "compression_threshold": None, "compression_ratio": 1, "strategy": "summary"}),
    ("verification", {"enabled": False, "max_iterations": 10}),
    ("tool_settings", {"shell": {"timeout": 86400, "output_limit": 1000}, "web_search": {"timeout": 0.3}}),
    (
        "mcp_servers",
        {"b.c": {"url": "https://shop.example/mcp", "risk": {"a*": ["write", "destructive"]}, "type": None}},
    ),
]
ODD: list[tuple[str, Any]] = [
    ("profile", True),
    ("name", "a b"),
    ("description", 5),
    ("system_prompt", ""),
    ("tools", "read_file"),
    ("agents_md", None),
    ("memory", {"short_term_size": 1001}),
    ("memory", {"short_term_size": True}),
    ("memory", {"more": 1}),
    ("skills", {"enabled": 1}),
    ("tool_settings", {"read_file": {"timeout": 5}}),
    ("tool_settings", {"shell": {"timeout": 0}}),
    ("mcp_servers", {"": SERVER}),
    ("mcp_servers", {"a": {**SERVER, "url": "http://x"}}),
    ("mcp_servers", {"a": {"url": "ftp://shop.example"}}),
    ("mcp_servers", {"a": {"url": "http://a:b@c/"}}),
    ("mcp_servers", {"a": {**SERVER, "type": "sse"}}),
    ("zzz", 1),
]


@pytest.mark.requirement("P1")
@pytest.mark.parametrize(
    ("key", "value", "taken"), [*((*each, True) for each in FITTING), *((*each, False) for each in ODD)]
)
def test_the_schema_takes_what_the_loader_takes(key: str, value: Any, taken: bool) -> None:
    said = {"description": "x", key: value}
    problems = read_profile(Path("mine.yaml"), json.dumps(said).encode()).problems
    assert (SCHEMA.is_valid(said), not problems) == (taken, taken), problems
    for problem in problems:  # each has its line, and what to do
        assert problem.problem.startswith("mine.yaml:1")
        assert problem.remedy


@pytest.mark.parametrize("file", sorted(BUILTIN_FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_schema_takes_the_profiles_that_ship(file: Path) -> None:
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
