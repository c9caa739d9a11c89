"""What is shipped: every folder, nothing else, light to import, and enough by itself to run a turn."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import worldagent
from support.house import ROOT, UNSHIPPED, pyproject, shipped_folders, shipped_modules, shipped_names
from worldagent.core.pauses import PersonAnswer

VERSION = pyproject()["project"]["version"]
# Written by tools, and in .gitignore.
BUILT = {"build", "dist"}
BASE_TURN = ROOT / "tests" / "house" / "base_turn.py"


def run(*command: str | Path, cwd: Path, seconds: float = 100) -> str:
    """Run `command` and return what it prints; where it fails, so does the test, with all that it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Built:
    """The two archives, and the names in each."""

    wheel: Path
    in_wheel: set[str]
    in_sdist: set[str]


@pytest.mark.requirement("T4")
def test_every_answer_of_a_person_comes_from_the_front_door() -> None:
    answers = {each.__name__ for each in get_args(PersonAnswer)}
    assert answers <= {*worldagent.__all__}
    assert all(getattr(worldagent, name) in get_args(PersonAnswer) for name in answers)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the source archive from this checkout, and the wheel from the source archive."""
    target = tmp_path_factory.mktemp("built")
    run(sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    [wheel], [sdist] = target.glob("*.whl"), target.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
        return Built(wheel, set(archive.namelist()), names)


def modules_loaded_by(statement: str, cwd: Path) -> set[str]:
    """Give the modules that `statement` loads in a fresh interpreter, with this checkout's package."""
    script = (
        f"import json, sys; sys.path.insert(0, {str(ROOT / '.dev')!r}); before = set(sys.modules); {statement}; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    loaded: list[str] = json.loads(run(sys.executable, "-P", "-c", script, cwd=cwd))
    return set(loaded)


def test_every_folder_with_python_in_it_ships_or_is_known_not_to() -> None:
    with_python = {
        folder.name
        for folder in ROOT.iterdir()
        if folder.is_dir() and not folder.name.startswith((".", "_")) and any(folder.rglob("*.py"))
    }
    assert with_python - UNSHIPPED - BUILT == {folder.name for folder in shipped_folders()}


def test_every_shipped_folder_is_a_package_and_no_other_folder_is() -> None:
    assert [folder.name for folder in shipped_folders() if not (folder / "__init__.py").exists()] == []
    inner = {module.parent for module in shipped_modules()}
    assert [str(folder.relative_to(ROOT)) for folder in inner if not (folder / "__init__.py").exists()] == []
    # The import contracts read every folder that is a package, and pytest names modules after it.
    assert [str(path.relative_to(ROOT)) for name in UNSHIPPED for path in (ROOT / name).rglob("__init__.py")] == []


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    metadata = f"worldagent-{VERSION}.dist-info/"
    outside = {name for name in built.in_wheel if not name.startswith(("worldagent/", metadata))}
    assert outside == set()
    python = {name for name in built.in_wheel if name.endswith(".py")}
    assert python == {f"worldagent/{path.relative_to(ROOT).as_posix()}" for path in shipped_modules()}
    assert {"worldagent/py.typed", f"{metadata}licenses/LICENSE"} <= built.in_wheel
    shipped = {f"worldagent/profiles/builtin/{path.name}" for path in (ROOT / "profiles" / "builtin").iterdir()}
    assert len(shipped) == 4
    assert shipped <= built.in_wheel


def test_the_source_archive_holds_no_link_no_cache_and_no_environment(built: Built) -> None:
    tops = {name.partition("/")[0] for name in built.in_sdist}
    assert {top for top in tops if top.startswith(".")} <= {".gitignore"}
    assert not [name for name in built.in_sdist if name.endswith(".pyc")]
    assert set(shipped_names()) <= tops


def test_importing_the_package_loads_nothing_but_itself(tmp_path: Path) -> None:
    loaded = modules_loaded_by("import worldagent", tmp_path)
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == {"worldagent"}
    assert len(loaded) < 10


def test_the_front_door_gives_every_name_it_lists() -> None:
    assert set(worldagent.__all__) <= set(dir(worldagent))
    for name in worldagent.__all__:
        assert getattr(worldagent, name).__name__ == name


def test_the_names_of_the_front_door_load_no_model_library(tmp_path: Path) -> None:
    loaded = modules_loaded_by("from worldagent import *", tmp_path)
    assert "worldagent.agent.agent" in loaded
    assert loaded.isdisjoint({"dspy", "langchain_core", "langgraph", "litellm", "mcp", "opentelemetry"})


def test_making_an_agent_loads_no_model_library(tmp_path: Path) -> None:
    made = "worldagent.WorldAgent('w', lm='openai/gpt-4o', models={'fast': 'openai/gpt-4o-mini'}, workers=[critic])"
    critic = "critic = worldagent.Worker('critic', 'You judge.', 'judges')"
    loaded = modules_loaded_by(f"import worldagent; {critic}; {made}", tmp_path)
    assert "worldagent.agent.agent" in loaded
    assert loaded.isdisjoint({"dspy", "langchain_core", "langgraph", "litellm", "mcp", "opentelemetry"})


def test_the_front_door_knows_its_version_and_refuses_other_names() -> None:
    assert worldagent.__version__ == VERSION
    with pytest.raises(AttributeError, match="'Wordlagent'"):
        worldagent.Wordlagent  # noqa: B018  # the access is what is tested


def test_a_turn_needs_nothing_that_an_extra_brings(tmp_path: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(ROOT / '.dev')!r}); import runpy; sys.argv[0] = sys.argv.pop(1); "
    words = (f"{script}runpy.run_path(sys.argv[0], run_name='__main__')", BASE_TURN, tmp_path / "home", "alone")
    assert run(sys.executable, "-P", "-c", *words, cwd=tmp_path) == "Hi.\n"


@pytest.mark.soak  # pip unpacks all dependencies
@pytest.mark.timeout(600)
def test_a_base_install_runs_a_turn(built: Built, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "base", cwd=tmp_path)
    python = tmp_path / "base" / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "-qq", "--no-compile", built.wheel)
    run(sys.executable, *install, cwd=tmp_path, seconds=500)
    assert run(python, BASE_TURN, tmp_path / "home", cwd=tmp_path) == "Hi.\n"


@pytest.mark.parametrize(
    ("before", "now", "name"),
    [
        ("worldagent.society", "worldagent.members", "WorkspaceConfig"),
        ("worldagent.society", "worldagent.members.mail.transport", "InMemoryTransport"),
        ("worldagent.society.graph", "worldagent.members.graph", "graph_of"),
        ("worldagent.society.nats", "worldagent.members.mail.nats", "event_subject"),
        ("worldagent.autonomy", "worldagent.members", "Gateway"),
        ("worldagent.autonomy", "worldagent.members.events.routing", "route"),
    ],
)
def test_a_path_of_before_gives_what_has_moved_and_warns(before: str, now: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} is in {now} now"):
        found = getattr(import_module(before), name)
    assert found is getattr(import_module(now), name)
