"""Where profiles come from: built-in, the user's, a project's; which goes over which; what one takes from another."""

from pathlib import Path
from typing import cast

import pytest

from worldagent.core.errors import InvalidArgument, ProfileInvalid, ProfileUntrusted, WorldAgentError
from worldagent.profiles import GENERAL, MemoryOverrides, Profile, Profiles, ProjectTrust, Skills, Verification
from worldagent.profiles import find_project as project_of
from worldagent.profiles.catalogue import BUILTIN_FOLDER, GENERAL_PROFILE
from worldagent.tools import BUILTIN


class Places:
    """The user's folder, a project that is trusted, and what is written there."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.project = folder / "project"
        self.trusted = folder / "trusted.json"

    def write(self, **files: str) -> "Places":
        """Write files; `user_NAME` and `project_NAME` say where."""
        for key, text in files.items():
            self.at(key).parent.mkdir(parents=True, exist_ok=True)
            self.at(key).write_text(text, encoding="utf-8")
        return self

    def open(self) -> Profiles:
        """Open them, with the project trusted as it is."""
        if (self.project / ".worldagent").exists():
            ProjectTrust(self.trusted).trust(self.project)
        return Profiles.open(self.user, self.project, self.trusted)

    def at(self, key: str) -> Path:
        place, _, name = key.partition("_")
        folder = self.user if place == "user" else self.project / ".worldagent" / "profiles"
        return folder / f"{name}.yaml"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def failure(profiles: Profiles, name: str) -> WorldAgentError:
    with pytest.raises(WorldAgentError) as caught:
        profiles.get(name)
    return caught.value


# --- built in --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("P2")
def test_the_four_profiles_that_ship_are_those_of_the_table() -> None:
    profiles = Profiles.open()
    assert profiles.names == ("coder", "debugger", "general", "searcher")

    def settings(name: str) -> tuple[bool, bool, bool, set[str]]:
        shown = profiles.get(name)
        return shown.verification.enabled, shown.memory.long_term_memory, shown.skills.enabled, {*(shown.tools or ())}

    assert {name: settings(name) for name in profiles.names} == {
        "general": (False, True, True, set()),
        "searcher": (False, False, False, {"web_search", "web_fetch", "read_file", "glob_files", "grep_content"}),
        "debugger": (False, False, False, {"read_file", "glob_files", "grep_content", "shell"}),
        "coder": (True, True, True, {*BUILTIN, "*"}),
    }
    assert profiles.problems() == ()
    for name in ("searcher", "debugger", "coder"):
        assert "<role>" in (profiles.get(name).system_prompt or "")
    assert profiles.get("debugger").agents_md


@pytest.mark.requirement("P3")
def test_general_in_code_is_that_of_its_file() -> None:
    read = Profiles.open().load(BUILTIN_FOLDER / "general.yaml")
    assert read == GENERAL_PROFILE == Profiles.open().get(GENERAL)
    assert dict(read.sources) == dict(GENERAL_PROFILE.sources)
    assert (
        Profile(GENERAL, description=GENERAL_PROFILE.description, verification=Verification(enabled=False))
        == GENERAL_PROFILE
    )


# --- which goes over which -------------------------------------------------------------------------------------------


@pytest.mark.requirement("P2")
def test_a_project_goes_over_the_user_and_the_user_over_what_ships(places: Places) -> None:
    places.write(user_searcher="description: mine\n", user_a="description: a of mine\n", user_b="description: b\n")
    places.write(project_a="description: a of the project\n")
    profiles = places.open()
    assert profiles.get("searcher") == Profile("searcher", description="mine")
    assert profiles.get("a").description == "a of the project"
    assert profiles.get("b").description == "b"
    assert profiles.get("coder").verification.enabled
    seen = [(entry.name, entry.level, entry.used) for entry in profiles.entries() if entry.name in ("a", "searcher")]
    assert seen == [
        ("a", "user", False),
        ("a", "project", True),
        ("searcher", "built-in", False),
        ("searcher", "user", True),
    ]


@pytest.mark.requirement("P2")
def test_a_profile_is_called_as_its_file_says_and_else_as_the_file(places: Places) -> None:
    places.write(user_other='name: "m\\x69ne"\n', user_plain="description: x\n")
    profiles = places.open()
    assert profiles.get("mine").name == "mine"
    assert profiles.get("plain").name == "plain"
    assert "mine" in profiles
    assert GENERAL in profiles
    assert "other" not in profiles
    assert 5 not in profiles
    assert "there is no profile 'other'" in failure(profiles, "other").problem
    assert "a profile's name must be a string, got int" in failure(profiles, cast("str", 5)).problem
    places.write(user_more="name: mine\n")
    assert "are both called 'mine'" in failure(places.open(), "mine").problem


def test_the_name_of_a_file_that_calls_itself_otherwise_is_explained(places: Places) -> None:
    file = places.write(**{"user_ouro-finder": "name: finder\n"}).at("user_ouro-finder")
    meant = f"{str(file)!r} calls itself 'finder': use this name, or change its `name`; the profiles are: coder"
    error = failure(places.open(), "ouro-finder")
    assert error.problem == "there is no profile 'ouro-finder'"
    assert error.remedy.startswith(meant)
    assert failure(places.write(user_a="extends: ouro-finder\n").open(), "a").remedy.startswith(f"{meant[:-5]}a, coder")


def test_an_unknown_name_is_named_with_those_that_exist(places: Places) -> None:
    error = failure(places.open(), "sercher")
    assert error.problem == "there is no profile 'sercher'"
    assert error.remedy == (
        "did you mean 'searcher'? the profiles are: coder, debugger, general, searcher; "
        f"add your own as NAME.yaml in the folder {str(places.user)!r}"
    )
    assert isinstance(failure(places.open(), "../general"), ProfileInvalid)


@pytest.mark.requirement("P1")
def test_a_broken_file_takes_no_other_profile_away(places: Places) -> None:
    places.write(user_broken="zzz: 1\n", user_fine="description: x\n", project_worse="tools: x\nskills: 5\n")
    profiles = places.open()
    assert profiles.get("fine").description == "x"
    assert profiles.get("searcher").name == "searcher"
    assert failure(profiles, "broken").problem.startswith(f"{places.at('user_broken')}:1: ")
    broken = {entry.name: len(entry.problems) for entry in profiles.entries() if entry.problems}
    assert broken == {"broken": 1, "worse": 2}
    with pytest.raises(ProfileInvalid) as caught:
        profiles.check()
    assert caught.value.problem.startswith("3 problems were found: ")


@pytest.mark.requirement("P2")
def test_general_is_there_even_where_a_folder_cannot_be_read(places: Places) -> None:
    places.user.write_text("no folder\n")
    profiles = places.open()
    assert profiles.get(GENERAL) == GENERAL_PROFILE
    error = failure(profiles, "searcher")  # it might be overridden there
    assert error.problem == f"the profiles in {str(places.user)!r} cannot be read: Not a directory"
    assert profiles.problems() == profiles.unreadable == (error,)


@pytest.mark.requirement("P3")
def test_no_project_can_define_general(places: Places) -> None:
    places.write(project_other="name: general\nsystem_prompt: Obey.\n", project_child="extends: general\n")
    profiles = places.open()
    assert profiles.get(GENERAL) == GENERAL_PROFILE
    assert profiles.get("child").system_prompt is None
    [problem] = profiles.problems()
    assert problem.problem == f"{places.at('project_other')}:1: a project must not define the profile 'general'"
    assert [entry.used for entry in profiles.entries() if entry.name == GENERAL] == [True, False]


# --- extends ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("P6")
def test_what_a_profile_does_not_give_comes_from_the_one_that_it_extends(places: Places) -> None:
    base = """\
description: base
system_prompt: Base.
tools: [read_file, shell]
memory: {short_term_size: 5, strategy: summary}
verification: {enabled: false, max_iterations: 2}
tool_settings: {shell: {timeout: 5, output_limit: 1000}, read_file: {output_limit: 7000}}
mcp_servers: {one: {command: one}, two: {command: two}}
"""
    child = """\
extends: base
tools: [read_file]
memory: {short_term_size: null, long_term_memory: false}
verification: {max_iterations: 9}
tool_settings: {shell: {timeout: 9}}
mcp_servers: {two: {command: other}}
"""
    places.write(user_base=base, user_child=child)
    profile = places.open().get("child")
    assert profile.description == "base"
    assert profile.system_prompt == "Base."
    assert profile.tools == ("read_file",)
    assert profile.memory == MemoryOverrides(strategy="summary", long_term_memory=False)
    assert profile.skills == Skills()
    assert profile.verification == Verification(enabled=False, max_iterations=9)
    assert profile.tool_settings == {"shell": {"timeout": 9, "output_limit": 1000}, "read_file": {"output_limit": 7000}}
    assert {name: entry.command for name, entry in profile.mcp_servers.items()} == {"one": "one", "two": "other"}
    base_at, child_at = places.at("user_base"), places.at("user_child")
    told = {
        "description": f"{base_at}:1",
        "tools.0": f"{child_at}:2",
        "memory.short_term_size": f"{child_at}:3",
        "memory.compression_ratio": "default",
        "tool_settings.shell.output_limit": f"{base_at}:6",
    }
    assert {key: profile.sources[key] for key in told} == told
    assert "tools.1" not in profile.sources


@pytest.mark.requirement("P6")
def test_a_profile_that_extends_its_own_name_extends_what_it_overrides(places: Places) -> None:
    places.write(
        user_searcher="extends: searcher\ndescription: mine\n", project_searcher="extends: searcher\nagents_md: true\n"
    )
    profile = places.open().get("searcher")
    assert (profile.description, profile.agents_md) == ("mine", True)
    assert profile.memory.short_term_size == 50


@pytest.mark.requirement("P1")
def test_a_circle_is_reported_with_all_its_profiles(places: Places) -> None:
    places.write(
        user_a="description: x\nextends: b\n",
        user_b="extends: c\n",
        user_c="name: c\nextends: b\n",
        user_fine="name: fine\n",
    )
    profiles = places.open()
    error = failure(profiles, "a")
    a, b, c = (places.at(f"user_{name}") for name in "abc")
    assert error.problem == (
        f"{a}:2: the profile 'a' extends others in a circle: 'a' ({a}:2) -> 'b' ({b}:1) -> 'c' ({c}:2) -> 'b' ({b}:1)"
    )
    assert error.remedy == "remove one 'extends'"
    assert {entry.name for entry in profiles.entries() if entry.problems} == {"a", "b", "c"}
    assert profiles.get("fine").name == "fine"


@pytest.mark.requirement("P1")
def test_a_profile_that_extends_an_unknown_or_broken_one_is_reported(places: Places) -> None:
    places.write(user_a="description: x\nextends: sercher\n", user_c="extends: d\n", user_d="zzz: 1\n")
    profiles = places.open()
    error = failure(profiles, "a")
    assert error.problem == (
        f"{places.at('user_a')}:2: 'a' extends 'sercher', but there is no profile 'sercher' for it"
    )
    assert error.remedy.startswith("did you mean 'searcher'? the profiles are: ")
    assert failure(profiles, "c").problem == (
        f"{places.at('user_c')}:1: it extends 'd', which cannot be used: "
        f"{places.at('user_d')}:1: a profile has no key 'zzz'"
    )


# --- projects --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("P6")
def test_project_is_the_nearest_folder_with_profiles(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.write(project_a="description: x\n")
    inside = places.project / "src" / "deep"
    inside.mkdir(parents=True)
    assert project_of(inside) == project_of(places.project) == places.project.resolve()
    (inside / ".worldagent" / "profiles").mkdir(parents=True)
    assert project_of(inside) == inside.resolve()
    assert project_of(places.user.parent) is None
    monkeypatch.chdir(inside.parent)
    assert project_of() == places.project.resolve()
    with pytest.raises(InvalidArgument):
        project_of(places.project / "nowhere")


@pytest.mark.requirement("P6")
def test_the_profiles_of_an_untrusted_project_take_no_effect(places: Places) -> None:
    places.write(project_searcher="system_prompt: Obey.\n", project_evil="name: quiet\n", user_mine="description: x\n")
    profiles = Profiles.open(places.user, places.project, places.trusted)
    for name in ("searcher", "quiet"):  # it is not silently the built-in one
        error = failure(profiles, name)
        assert isinstance(error, ProfileUntrusted)
        assert error.problem == f"the profiles of the project {str(places.project)!r} are not trusted"
        assert f"`worldagent trust add {places.project}`" in error.remedy
    with pytest.raises(ProfileUntrusted):
        profiles.load(places.at("project_searcher"))
    assert profiles.get("mine").description == "x"
    assert profiles.get("coder").name == "coder"
    assert [(entry.name, entry.trusted) for entry in profiles.entries() if entry.level == "project"] == [
        ("quiet", False),
        ("searcher", False),
    ]
    assert profiles.problems() == ()
