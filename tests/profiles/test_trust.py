"""Which projects' profiles count: those that the user trusts, as they were then (P6)."""

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import run_script
from worldagent.core.errors import InvalidArgument, ProfileInvalid, ProfileUntrusted
from worldagent.harness.trust import project_digest
from worldagent.profiles import Profiles, ProjectTrust

pytestmark = pytest.mark.requirement("P6")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one profile."""
    folder = tmp_path / "project" / ".worldagent" / "profiles"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("description: x\n")
    return tmp_path / "project"


@pytest.fixture
def trust(tmp_path: Path) -> ProjectTrust:
    return ProjectTrust(tmp_path / "config" / "trusted.json")


def opened(project: Path, trust: ProjectTrust) -> Profiles:
    return Profiles.open(project / "nobody", project, trust.file)


def profiles_of(project: Path) -> Path:
    return project / ".worldagent" / "profiles"


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "mine.yaml").write_text("description: x \n"),
        lambda folder: (folder / "other.yaml").rename(folder / "another.yaml"),
    ],
    ids=["content", "renamed"],
)
def test_a_change_ends_trust(project: Path, trust: ProjectTrust, change: Callable[[Path], object]) -> None:
    (profiles_of(project) / "other.yaml").write_text("description: y\n")
    trust.trust(project)
    change(profiles_of(project))
    assert trust.standing(project) == "changed"
    with pytest.raises(ProfileUntrusted, match="have changed since they were trusted"):
        opened(project, trust).get("mine")
    trust.trust(project)
    assert opened(project, trust).get("mine").name == "mine"


def test_a_project_without_readable_profiles_is_not_trusted(project: Path, trust: ProjectTrust) -> None:
    (profiles_of(project) / "mine.yaml").unlink()
    with pytest.raises(InvalidArgument, match="has no profiles and no skills; put files called"):
        trust.trust(project)
    profiles_of(project).rmdir()
    profiles_of(project).write_text("")
    with pytest.raises(ProfileInvalid):
        trust.trust(project)
    assert not trust.file.exists()


def test_a_change_during_review_is_not_trusted(project: Path, trust: ProjectTrust) -> None:
    seen = opened(project, trust)
    digest = project_digest(project, seen.project_folder)
    (profiles_of(project) / "mine.yaml").write_text("description: other\n")
    with pytest.raises(ProfileUntrusted, match="have changed since they were shown"):
        trust.trust(project, digest=digest)
    assert not trust.is_trusted(project)


def test_a_file_that_is_a_link_out_of_the_project_is_refused(
    project: Path, trust: ProjectTrust, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text("description: stolen\n")
    (profiles_of(project) / "linked.yaml").symlink_to(outside)
    (project / "kept.yaml").write_text("description: kept\n")
    (profiles_of(project) / "kept.yaml").symlink_to(project / "kept.yaml")
    (profiles_of(project) / "loop.yaml").symlink_to("loop.yaml")
    trust.trust(project)
    profiles = opened(project, trust)
    for name in ("linked", "loop"):
        with pytest.raises(ProfileInvalid) as caught:
            profiles.get(name)
        told = f"{profiles_of(project) / name}.yaml:1 cannot be read: "
        assert caught.value.problem.startswith(told)
    assert "a link leads out of the project" in profiles.problems()[0].problem
    assert profiles.get("kept").description == "kept"
    assert profiles.get("mine").description == "x"


def test_the_file_is_its_owners_alone_and_whole(project: Path, trust: ProjectTrust) -> None:
    trust.trust(project)
    assert stat.S_IMODE(trust.file.stat().st_mode) == 0o600
    assert json.loads(trust.file.read_text())["projects"].keys() == {str(project.resolve())}
    assert {path.name for path in trust.file.parent.iterdir()} <= {"trusted.json", "trusted.json.lock"}


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("{", 0o600, "it is not JSON"),
        ('{"version": 1, "projects": {"a": 5}}', 0o600, "this version of worldagent did not write it"),
        ('{"version": 1, "projects": {}}', 0o622, "other users can write it"),
    ],
)
def test_a_file_that_cannot_be_believed_trusts_nothing_and_is_left_alone(
    project: Path, trust: ProjectTrust, text: str, mode: int, problem: str
) -> None:
    trust.file.parent.mkdir()
    trust.file.write_text(text)
    trust.file.chmod(mode)
    for act in (trust.is_trusted, trust.trust, trust.untrust):
        with pytest.raises(ProfileUntrusted) as caught:
            act(project)
        assert caught.value.problem.endswith(problem)
        assert "remove the file" in caught.value.remedy
    with pytest.raises(ProfileUntrusted):
        opened(project, trust).get("mine")
    assert opened(project, trust).get("general").name == "general"
    assert trust.file.read_text() == text


async def test_processes_that_trust_at_once_lose_nothing(tmp_path: Path, trust: ProjectTrust) -> None:
    script = """
import sys
from pathlib import Path
from worldagent.harness.trust import project_digest
from worldagent.profiles import ProjectTrust
for name in sys.argv[2:]:
    ProjectTrust(Path(sys.argv[1])).trust(Path(name))
"""
    projects = [tmp_path / f"p{number}" for number in range(8)]
    for each in projects:
        profiles_of(each).mkdir(parents=True)
        (profiles_of(each) / "mine.yaml").write_text("description: x\n")
    await asyncio.gather(*(run_script(script, trust.file, *projects[number::4]) for number in range(4)))
    assert all(map(trust.is_trusted, projects))
    assert {path.name for path in trust.file.parent.iterdir()} <= {"trusted.json", "trusted.json.lock"}


def test_a_projects_name_is_found_however_yaml_writes_it(project: Path, trust: ProjectTrust) -> None:
    name = "searcher"
    (profiles_of(project) / "mine.yaml").write_bytes(b"? name # c\n: searcher\ndescription: theirs\n")
    with pytest.raises(ProfileUntrusted):
        opened(project, trust).get(name)
    trust.trust(project)
    assert opened(project, trust).get(name).description == "theirs"
