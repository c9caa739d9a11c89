"""A profile's file and the schema for editors: what they take, and how the rest is refused: file, line, remedy (P1)."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from worldagent.core.errors import MissingExtra, ProfileInvalid
from worldagent.harness.yaml import read_yaml
from worldagent.profiles import MemoryOverrides, Profile, Profiles, Skills, Verification, check_tools
from worldagent.profiles.catalogue import BUILTIN_FOLDER
from worldagent.profiles.loading import profile_schema, read_profile
from worldagent.tools import BUILTIN, OUTPUT_LIMITS, TIMEOUTS

pytestmark = pytest.mark.requirement("P1")

LARGEST = b"description: x\n#".ljust(1 << 16, b"x")
KEYS = (
    "the keys are: profile, name, description, extends, system_prompt, tools, sections, agents_md, guard, memory, "
    "skills, "
)


def load(folder: Path, text: str | bytes, name: str = "mine.yaml") -> Profile:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return Profiles.open(folder).load(file)


def refusal(folder: Path, text: str | bytes) -> ProfileInvalid:
    with pytest.raises(ProfileInvalid) as caught:
        load(folder, text)
    return caught.value


def test_every_key_has_its_value_and_the_line_it_is_from(tmp_path: Path) -> None:
    text = """\
profile: 1
description: reads
tools: ["read_*",
  shell]
verification: {max_iterations: 5}
tool_settings:
  shell: {timeout: 2.5, output_limit: 1000}
mcp_servers:
  shop: {url: "https://shop.example/mcp", token: secret-token}
memory:
"""
    profile = load(tmp_path, text)
    file = tmp_path / "mine.yaml"
    assert (profile.name, profile.tools) == ("mine", ("read_*", "shell"))
    assert profile.verification == Verification(max_iterations=5)
    assert profile.tool_settings == {"shell": {"timeout": 2.5, "output_limit": 1000}}
    assert profile.mcp_servers["shop"].server().host.url == "https://shop.example/mcp"
    assert "secret-token" not in repr(profile) + repr(profile.mcp_servers)
    assert {key: where for key, where in profile.sources.items() if where != "default"} == {
        "name": f"{file}:1",
        "description": f"{file}:2",
        "tools": f"{file}:3",
        "tools.0": f"{file}:3",
        "tools.1": f"{file}:4",
        "verification.max_iterations": f"{file}:5",
        "tool_settings.shell.timeout": f"{file}:7",
        "tool_settings.shell.output_limit": f"{file}:7",
        "mcp_servers.shop": f"{file}:9",
    }


def test_a_text_with_a_colon_needs_no_quotes(tmp_path: Path) -> None:
    text = "description: For work like this: research\nsystem_prompt: You search: the web\n  and: books.\ntools: [a]\n"
    profile = load(tmp_path, text)
    assert (profile.description, profile.system_prompt) == (
        "For work like this: research",
        "You search: the web and: books.",
    )
    assert profile.tools == ("a",)
    assert profile.sources["tools"] == f"{tmp_path / 'mine.yaml'}:4"
    error = refusal(tmp_path, "tools: read: all\n")
    assert "'tools' is not a list" in error.problem


@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        ("description: x\ntool: [a]\n", 2, "a profile has no key 'tool'", f"did you mean 'tools'? {KEYS}"),
        ("tools:\n- a\n- 5\n", 3, "'tools.1' is not a text", "give a text"),
        ("name: a b\n", 1, "'name' is not 1 to 64 letters, digits, '_' and '-'", "give 1 to 64"),
        ("memory:\n  short_term_size: 0\n", 2, "'memory.short_term_size' is not a whole number from 1 to 1000", "give"),
        ("memory:\n  compression_ratio: 1e400\n", 2, "is not a number above 0 and at most 1", "give a number"),
        ("memory:\n  strategy: best\n", 2, "is not one of sliding_window, summary, selective", "give one of"),
        ("mcp_servers:\n  a: {}\n", 2, "'mcp_servers.a': a server must have either command or url", "set one of them"),
        ("mcp_servers:\n  a:\n    comand: x\n", 3, "'mcp_servers.a' has no key 'comand'", "did you mean 'command'?"),
        ("mcp_servers:\n  a:\n    httpUrl: x\n", 3, "'mcp_servers.a' has no key 'httpUrl'", "in the setting mcp_files"),
        ("profile: 2\n", 1, "this version of worldagent cannot read the file's version", "write 'profile: 1'"),
        ("", 1, "is empty", "write 'key: value' lines"),
        ("- a\n", 1, "must be a mapping", "write 'key: value' lines"),
        ("description: a\nskills: {}\ndescription: b\n", 3, 'found duplicate key "description"', "write plain YAML"),
        ("description: a\nname: !x y\n", 2, "tags are not allowed", "write plain YAML"),
        ("description: &a b\nname: *a\n", 1, "anchors and aliases are not allowed", "write plain YAML"),
        ("name: a\n---\nname: b\n", 2, "it has more than one document", "write plain YAML"),
        ("name: a\ndescription: \x01\n", 2, "special characters are not allowed", "write plain YAML"),
        ("name: a\ndescription: 2020-13-45\n", 2, "there is no such date", "write plain YAML"),
        (f"name: a\nprofile: {'9' * 5000}\n", 2, "a number has more than 300 digits", "write plain YAML"),
        (b"name: a\ndescription: \xff\n", 2, "is not UTF-8", "save the file as UTF-8"),
        pytest.param(
            LARGEST + b"x",
            1,
            "cannot be read: it has more than 65536 bytes",
            "replace it with a readable file",
            id="a byte too many",
        ),
    ],
)
def test_an_invalid_profile_is_refused_with_file_line_and_remedy(
    tmp_path: Path, text: str | bytes, line: int, problem: str, remedy: str
) -> None:
    error = refusal(tmp_path, text)
    assert re.match(rf"{re.escape(str(tmp_path / 'mine.yaml'))}:(\d+)\b", error.problem)
    assert error.problem.startswith(f"{tmp_path / 'mine.yaml'}:{line}")
    assert problem in error.problem
    assert remedy in error.remedy


def test_at_most_twenty_problems_are_reported_per_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("".join(f"key{number}: 1\n" for number in range(1000)))
    problems = Profiles.open(tmp_path).entry(tmp_path / "mine.yaml").problems
    assert len(problems) == 21
    assert problems[0].problem.endswith("mine.yaml:1: a profile has no key 'key0'")
    assert problems[-1].problem.endswith("mine.yaml:21: 980 more problems begin here")


def test_no_value_of_a_file_is_in_an_error(tmp_path: Path) -> None:
    secret = "sk-verysecret"
    for text in (
        f"system_prompt: {secret}\nsystem_prompt: {secret}\n",
        f"mcp_servers:\n  a:\n    command: x\n    token: [{secret}]\n",
        f"mcp_servers:\n  a:\n    url: http://user:{secret}@x/\n",
        f"mcp_servers:\n  a:\n    url: http://x/\n    headers: {{X-Key: '{secret}é'}}\n",
        f"mcp_servers:\n  a:\n    url: http://x/\n    token: '{secret} {secret}'\n",
        f"system_prompt: [{secret}]\n",
        f"agents_md: {secret}\n",
        f"system_prompt: '{secret}\n",
    ):
        error = refusal(tmp_path, text)
        assert secret not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


def test_an_unknown_tool_is_reported_with_the_line_of_its_item(tmp_path: Path) -> None:
    profile = load(tmp_path, "tools:\n  - read_file\n  - 'shop.*'\n  - grep_contnt\n")
    with pytest.raises(ProfileInvalid) as caught:
        check_tools(profile, BUILTIN)
    assert caught.value.problem == f"{tmp_path / 'mine.yaml'}:4: there is no tool 'grep_contnt'"
    assert caught.value.remedy.startswith("did you mean 'grep_content'? the tools are: read_file, ")


def test_known_tools_globs_and_tools_of_servers_are_fine(tmp_path: Path) -> None:
    profile = load(
        tmp_path,
        "tools: [read_file, own, '*_x', 'a?', '[ab]c', fs_read, shop_buy, plain_tool]\n"
        "mcp_servers:\n  fs: {command: x}\n  other: {command: y, prefix: shop_}\n",
    )
    check_tools(profile, [*BUILTIN, "own"], ["plain_"])
    with pytest.raises(ProfileInvalid, match="there is no tool 'plain_tool'"):
        check_tools(profile, [*BUILTIN, "own"])
    check_tools(load(tmp_path, "description: all\n"), ())


def test_each_tool_has_the_settings_that_it_can_heed(tmp_path: Path) -> None:
    for tool in BUILTIN:
        for setting, having in (("timeout", TIMEOUTS), ("output_limit", OUTPUT_LIMITS)):
            text = f"tool_settings: {{{tool}: {{{setting}: 2000}}}}\n"
            if tool in having:
                assert load(tmp_path, text).tool_settings == {tool: {setting: 2000}}
            else:
                assert "has no key" in refusal(tmp_path, text).problem


def test_without_its_extra_a_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldagent.harness.yaml.find_spec", lambda _: None)
    (tmp_path / "mine.yaml").write_text("description: x\n")
    profiles = Profiles.open(tmp_path)
    assert profiles.get("general").name == "general"
    with pytest.raises(MissingExtra, match=r"worldagent\[yaml\]"):
        profiles.get("mine")


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
    ("mcp_servers", {"a": {"url": "${BASE:-https://shop.example}/mcp", "token": "${TOKEN}", "disabled": True}}),
    ("mcp_servers", {"a": {"url": "https://${HOST}:80/mcp", "deny": ["burn_*"]}}),
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
    ("mcp_servers", {"a": {**SERVER, "autoApprove": []}}),
    ("mcp_servers", {"a": {"url": "${BASE"}}),
    ("zzz", 1),
]


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
    for kind in (MemoryOverrides, Skills, Verification):
        for key, said in schema["$defs"][kind.__name__]["properties"].items():
            assert said["description"]
            assert said.get("default") == kind.model_fields[key].default


def test_a_profile_of_more_than_a_megabyte_is_not_parsed() -> None:
    [problem] = read_profile(Path("large.yaml"), b"#" * ((1 << 20) + 1)).problems
    assert str(problem) == "'large.yaml' has 1048577 bytes; keep it to 1048576 bytes"
