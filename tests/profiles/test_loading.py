"""What stands in a profile's file, and what is said of one that does not fit: file, line, what, and what to do (P1)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from worldagent import WorldAgent
from worldagent.core.errors import MissingExtra, ProfileInvalid
from worldagent.harness import GenerationOptions
from worldagent.profiles import MemoryOverrides, Profile, Profiles, Skills, Verification, check_tools
from worldagent.storage import Storage
from worldagent.tools import BUILTIN, OUTPUT_LIMITS, TIMEOUTS, BuiltinTools

EXAMPLE = """\
name: searcher
description: looks things up

system_prompt: |
  <role>
  You look things up and say where you found them.
  </role>

# what it can call
tools:
  - web_search
  - web_fetch
  - read_file
  - glob_files
  - grep_content

agents_md: false

memory:
  short_term_size: 50
  compression_threshold: 30000
  compression_ratio: 0.3
  strategy: sliding_window
  long_term_memory: false

skills:
  enabled: false

verification:
  enabled: false
"""
LARGEST = b"description: x\n#".ljust(1 << 16, b"x")
KEYS = "the keys are: profile, name, description, extends, system_prompt, tools, sections, agents_md, memory, skills, "


def load(folder: Path, text: str | bytes, name: str = "mine.yaml") -> Profile:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return Profiles.open(folder).load(file)


def refusal(folder: Path, text: str | bytes) -> ProfileInvalid:
    with pytest.raises(ProfileInvalid) as caught:
        load(folder, text)
    return caught.value


@pytest.mark.requirement("P1")
def test_a_file_with_every_part_loads_word_for_word(tmp_path: Path) -> None:
    assert load(tmp_path, EXAMPLE) == Profile(
        "searcher",
        description="looks things up",
        system_prompt="<role>\nYou look things up and say where you found them.\n</role>\n",
        tools=("web_search", "web_fetch", "read_file", "glob_files", "grep_content"),
        agents_md=False,
        memory=MemoryOverrides(
            short_term_size=50,
            compression_threshold=30000,
            compression_ratio=0.3,
            strategy="sliding_window",
            long_term_memory=False,
        ),
        skills=Skills(enabled=False),
        verification=Verification(enabled=False),
    )


@pytest.mark.requirement("P1")
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
    assert {key for key, where in profile.sources.items() if where == "default"} == {
        "system_prompt",
        "sections",
        "agents_md",
        "skills.enabled",
        "verification.enabled",
        *(f"memory.{key}" for key in MemoryOverrides.__dataclass_fields__),
        *(f"options.{key}" for key in GenerationOptions.model_fields),
    }


@pytest.mark.requirement("P1")
@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        ("description: x\ntool: [a]\n", 2, "a profile has no key 'tool'", f"did you mean 'tools'? {KEYS}"),
        (
            "memory:\n  short_term_siz: 5\n",
            2,
            "'memory' has no key 'short_term_siz'",
            "did you mean 'short_term_size'?",
        ),
        ("tools: read_file\n", 1, "'tools' is not a list, each item a text", "give a list"),
        ("tools:\n- a\n- 5\n", 3, "'tools.1' is not a text", "give a text"),
        ("name: a b\n", 1, "'name' is not 1 to 64 letters, digits, '_' and '-'", "give 1 to 64"),
        ("description: 5\n", 1, "'description' is not a text", "in quotes where it looks like a number"),
        ("system_prompt: ''\n", 1, "'system_prompt' is not a text with more than blanks", "give a text"),
        ("agents_md: yes\n", 1, "'agents_md' is not true or false", "give true or false"),
        ("memory:\n  short_term_size: 0\n", 2, "'memory.short_term_size' is not a whole number from 1 to 1000", "give"),
        ("memory:\n  short_term_size: 5.5\n", 2, "is not a whole number", "give a whole number"),
        ("memory:\n  compression_ratio: 1e400\n", 2, "is not a number above 0 and at most 1", "give a number"),
        ("memory:\n  strategy: best\n", 2, "is not one of sliding_window, summary, selective", "give one of"),
        ("verification: {max_iterations: 11}\n", 1, "is not a whole number from 1 to 10", "give a whole number"),
        ("tool_settings:\n  shel: {}\n", 2, "'tool_settings' has no key 'shel'", "did you mean 'shell'?"),
        ("tool_settings:\n  shell:\n    timeout: 0\n", 3, "is not a number above 0", "give a number"),
        ("mcp_servers:\n  a: {}\n", 2, "'mcp_servers.a': a server must have either command or url", "set one of them"),
        ("mcp_servers:\n  a:\n    comand: x\n", 3, "'mcp_servers.a' has no key 'comand'", "did you mean 'command'?"),
        ("mcp_servers:\n  a: {url: 'ftp://x'}\n", 2, "'mcp_servers.a': `url` must be", "pass an address such as"),
        (
            "mcp_servers:\n  a:\n    command: x\n    env: {A: 5}\n",
            4,
            "'mcp_servers.a.env.A' is not a text",
            "in quotes",
        ),
        (
            "mcp_servers:\n  a:\n    command: x\n    timeout: '5'\n",
            4,
            "'mcp_servers.a.timeout' is not a number",
            "give",
        ),
        ("profile: 2\n", 1, "this version of worldagent cannot read the file's version", "write 'profile: 1'"),
        ("", 1, "is empty", "write 'key: value' lines"),
        ("- a\n", 1, "must be a mapping", "write 'key: value' lines"),
        ("description: a\nskills: {}\ndescription: b\n", 3, 'found duplicate key "description"', "write plain YAML"),
        ("description: a\nname: !x y\n", 2, "tags are not allowed", "write plain YAML"),
        ("description: &a b\nname: *a\n", 1, "anchors and aliases are not allowed", "write plain YAML"),
        ("name: a\n---\nname: b\n", 2, "it has more than one document", "write plain YAML"),
        ("name: [a\n", 2, "cannot be read", "write plain YAML"),
        ("name: a\ndescription: \x01\n", 2, "special characters are not allowed", "write plain YAML"),
        ('name: a\ndescription: "\\U00110000"\n', 2, "there is no such character", "write plain YAML"),
        ("name: a\ndescription: 2020-13-45\n", 2, "there is no such date", "write plain YAML"),
        (f"name: a\nprofile: {'9' * 5000}\n", 2, "a number has more than 300 digits", "write plain YAML"),
        (
            "mcp_servers:\n  a:\n    command: x\n    env: {'A=B': c}\n",
            4,
            "'A=B' in 'mcp_servers.a' is not a valid",
            "without",
        ),
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
def test_what_does_not_fit_is_told_with_file_line_and_remedy(
    tmp_path: Path, text: str | bytes, line: int, problem: str, remedy: str
) -> None:
    error = refusal(tmp_path, text)
    assert re.match(rf"{re.escape(str(tmp_path / 'mine.yaml'))}:(\d+)\b", error.problem)
    assert error.problem.startswith(f"{tmp_path / 'mine.yaml'}:{line}")
    assert problem in error.problem
    assert remedy in error.remedy


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    profiles = Profiles.open(tmp_path)
    for name, problem in (
        ("pipe", "it is not a regular file"),
        ("folder", "it is not a regular file"),
        ("gone", "No such"),
    ):
        with pytest.raises(ProfileInvalid) as caught:
            profiles.get(name)
        assert caught.value.problem.startswith(f"{tmp_path / name}.yaml:1 cannot be read: {problem}")


def test_of_a_file_with_very_many_mistakes_the_first_twenty_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("".join(f"key{number}: 1\n" for number in range(1000)))
    problems = Profiles.open(tmp_path).entry(tmp_path / "mine.yaml").problems
    assert len(problems) == 21
    assert problems[0].problem.endswith("mine.yaml:1: a profile has no key 'key0'")
    assert problems[-1].problem.endswith("mine.yaml:21: 980 more problems begin here")


def test_all_that_is_wrong_in_a_file_is_told_in_the_order_of_its_lines(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("zzz: 1\ntools: x\nmemory:\n  short_term_size: 0\n  strategy: x\nname: b\n")
    entry = Profiles.open(tmp_path).entry(tmp_path / "mine.yaml")
    assert entry.name == "b"
    assert entry.profile is None
    assert [int(str(problem).split(":")[1]) for problem in entry.problems] == [1, 2, 4, 5]


def test_no_value_of_a_file_stands_in_an_error(tmp_path: Path) -> None:
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


def test_a_file_whose_own_name_can_be_none_needs_one(tmp_path: Path) -> None:
    (tmp_path / "my own.yaml").write_text("description: x\n")
    [problem] = Profiles.open(tmp_path).entry(tmp_path / "my own.yaml").problems
    assert problem.problem.startswith(f"{tmp_path / 'my own.yaml'}:1 has no name")
    assert problem.remedy.startswith("write 'name: '")
    assert load(tmp_path, "name: mine\n", "my own.yaml").name == "mine"


@pytest.mark.requirement("P1")
def test_an_unknown_tool_is_told_with_the_line_of_its_item(tmp_path: Path) -> None:
    profile = load(tmp_path, "tools:\n  - read_file\n  - 'shop.*'\n  - grep_contnt\n")
    with pytest.raises(ProfileInvalid) as caught:
        check_tools(profile, BUILTIN)
    assert caught.value.problem == f"{tmp_path / 'mine.yaml'}:4: there is no tool 'grep_contnt'"
    assert caught.value.remedy.startswith("did you mean 'grep_content'? the tools are: read_file, ")


@pytest.mark.parametrize(("wrong", "meant"), [("read_fil", "read_file"), ("xyz", "")])
def test_an_agent_without_tools_names_those_that_ship_when_a_profile_misspells_one(
    tmp_path: Path, wrong: str, meant: str
) -> None:
    profile = Profile("mine", tools=(wrong,))
    allowed = BuiltinTools(roots=(tmp_path,))
    with pytest.raises(ProfileInvalid) as caught:
        WorldAgent("novel", lm="local", profile=profile, builtin_tools=allowed, storage=Storage(home=tmp_path))
    assert caught.value.remedy.startswith(f"did you mean {meant!r}? " if meant else "the tools are: ")
    assert "read_file, write_file" in caught.value.remedy


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
