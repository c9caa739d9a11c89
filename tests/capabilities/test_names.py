"""Names of capabilities and entry points: what is taken, what is refused, and what stays that of this package."""

import logging
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent.agent.capabilities import named_capability
from worldagent.agent.copying import copy_storage
from worldagent.agent.memory import Memory, WorkspaceMemory
from worldagent.core.capability import Capability
from worldagent.core.errors import CapabilityFailed, InvalidArgument
from worldagent.storage import Storage

Install = Callable[..., None]
MODULE = """
from worldagent.core.capability import Capability

class Good(Capability):
    name = "good"
    migrations = (("CREATE TABLE good_one(id TEXT PRIMARY KEY)",),)

class Memory(Capability):
    name = "memory"

class Raising(Capability):
    name = "raising"

    def __init__(self):
        raise KeyError("a secret")

text, nothing, made = "text", None, Good()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with these entry points to a module like `MODULE`, before all others."""
    named_capability.cache_clear()
    modules: list[str] = []

    def installed(package: str, module: str = MODULE, **points: str) -> None:
        folder, name = tmp_path / "installed" / package, f"capability_{package}"
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        listed = "\n".join(f"{point} = {name}:{what}" for point, what in points.items())
        (info / "entry_points.txt").write_text(f"[worldagent.capabilities]\n{listed}\n")
        (folder / f"{name}.py").write_text(module)
        monkeypatch.syspath_prepend(str(folder))
        modules.append(name)

    yield installed
    named_capability.cache_clear()
    for name in modules:
        sys.modules.pop(name, None)


@pytest.mark.requirement("H10")
def test_a_package_cannot_take_the_place_of_a_capability_of_worldagent(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("thief", memory="Memory")
    with caplog.at_level(logging.WARNING, "worldagent.agent"):
        assert named_capability("memory") is Memory
    assert [record.getMessage() for record in caplog.records] == [
        "the package 'thief' has a capability 'memory', which is one of worldagent and stays it"
    ]


@pytest.mark.requirement("H10")
def test_an_entry_point_that_is_no_capability_of_its_name_is_refused(tmp_path: Path, install: Install) -> None:
    install("one", text="text", nothing="nothing", made="made", other="Good", missing="Missing", raising="Raising")
    install("exits", module="raise SystemExit(3)", exits="Good")
    for name, problem in (
        ("text", "the entry point 'text' of the package 'one' is not a subclass of Capability"),
        ("nothing", "the entry point 'nothing' of the package 'one' is not a subclass of Capability"),
        ("made", "the entry point 'made' of the package 'one' is not a subclass of Capability"),
        ("other", "the entry point 'other' of the package 'one' is the capability 'good'; give both one name"),
        (
            "missing",
            "the capability 'missing' cannot be loaded: its module raised AttributeError; .* 'one' again",
        ),
        ("exits", "the capability 'exits' cannot be loaded: its module raised SystemExit"),
    ):
        with pytest.raises(InvalidArgument, match=problem):
            scripted_agent(tmp_path, answering(), capabilities=[name])
    seen: list[BaseException] = []
    with pytest.raises(CapabilityFailed, match="the constructor of the capability 'raising' raised KeyError"):
        scripted_agent(tmp_path, answering(), capabilities=["raising"], on_error=seen.append)
    assert [type(each) for each in seen] == [KeyError]
    install("two", text="text")
    with pytest.raises(InvalidArgument, match="'one' and the package 'two' both have the capability 'text'"):
        scripted_agent(tmp_path, answering(), capabilities=["text"])


@pytest.mark.requirement("H10")
async def test_a_copy_has_all_tables_of_a_capability_or_is_refused(tmp_path: Path, install: Install) -> None:
    install("one", good="Good")
    async with scripted_agent(tmp_path / "old", answering(), capabilities=["good"]):
        pass
    with closing(sqlite3.connect(tmp_path / "old" / "agent.db")) as file:
        file.execute("CREATE TABLE good_extra(id TEXT PRIMARY KEY)")
        with pytest.raises(InvalidArgument, match="a table 'good_extra', which no migration of the capability 'good'"):
            await copy_storage(Storage(home=tmp_path / "old"), Storage(home=tmp_path / "new"))
        file.execute("DROP TABLE good_extra")
    copied = await copy_storage(Storage(home=tmp_path / "old"), Storage(home=tmp_path / "new"))
    assert copied.parts["good_one"].rows == 0


def named(**attributes: Any) -> Capability[Any]:
    made: Capability[Any] = type("Made", (Capability,), attributes)()
    return made


@pytest.mark.requirement("H10")
def test_what_a_capability_declares_is_checked(tmp_path: Path) -> None:
    for attributes, problem in (
        ({}, "the capability 'Made' has no possible name, got 'None'"),
        ({"name": ""}, "the capability 'Made' has no possible name, got ''"),
        ({"name": "a b;--"}, "the capability 'Made' has no possible name, got 'a b;--'"),
        ({"name": 5}, "the capability 'Made' has no possible name, got '5'"),
        ({"name": "memory"}, "'Made' has the name 'memory', which is one of worldagent; .* subclass of Memory"),
        ({"name": "queue"}, "'Made' has the name 'queue', which is one of worldagent; .* subclass of Queue"),
        ({"name": "x", "after": "memory"}, "`after` of the capability 'x' must be a tuple of names"),
        ({"name": "x", "after": None}, "`after` of the capability 'x' must be a tuple of names"),
    ):
        with pytest.raises(InvalidArgument, match=problem):
            scripted_agent(tmp_path, answering(), capabilities=[named(**attributes)])


@pytest.mark.requirement("H10")
async def test_get_takes_the_class_and_not_the_name(tmp_path: Path) -> None:
    class OwnMemory(Memory):
        pass

    async with scripted_agent(tmp_path, answering(), capabilities=[OwnMemory(), named(name="x")]) as agent:
        assert isinstance(agent.get(Memory), WorkspaceMemory)
        assert agent.get(OwnMemory) is agent.memory
        for wrong in (type(named(name="memory")), type(named(name="x")), type(named())):
            with pytest.raises(InvalidArgument, match="this agent has no"):
                agent.get(wrong)
        with pytest.raises(InvalidArgument, match="`kind` must be the class of a capability"):
            agent.get(3)  # type: ignore[arg-type]
