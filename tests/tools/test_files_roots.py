"""No path leads a tool out of its folders, by `..`, links, a swap or a name, and none into the home of the agent."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.agents import answering, failure, scripted_agent
from support.tools import FileTools, open_files, outcome, tree
from worldagent import WorldAgent
from worldagent.core.errors import InvalidArgument, PathRefused, ToolFailed
from worldagent.profiles import Profile
from worldagent.tools import BuiltinTools
from worldagent.tools.files import Roots, roots
from worldagent.tools.files.roots import Handle

pytestmark = [
    pytest.mark.timeout(100),
    pytest.mark.skipif(sys.platform == "win32", reason="links need rights there, and pipes have no names"),
]

SECRET = "the secret outside"
HIGH = "../" * 40

DOINGS: list[Callable[[FileTools, str], object]] = [
    lambda files, path: files.read(path),
    lambda files, path: files.write(path, "mine"),
    lambda files, path: files.write(f"{path}/new", "mine"),
    lambda files, path: files.edit(path, "secret", "mine"),
    lambda files, path: files.glob("**", path=path),
    lambda files, path: files.grep("secret", path=path),
    lambda files, path: files.roots.folder(path),
]
"""Everything that a path can be given to."""


@pytest.fixture(params=["relative", "by path"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `ws` to work in beside a folder `out` with a secret, with every way of opening folders there is."""
    if request.param == "by path":
        defaults = Handle.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "relative", False)
    tree(tmp_path / "ws", "a/b/", "a/file", "top", content="inside\n")
    tree(tmp_path / "out", "secret", "d/secret", content=SECRET)
    return tmp_path.resolve()


def ways_out(home: Path) -> list[str]:
    ws = home / "ws"
    for name, target in {
        "link": "../out/secret",
        "absolute": str(home / "out/secret"),
        "folder": "../out",
        "chain": "a/next",
        "a/next": "up",
        "a/up": "../..",
        "root": "/",
        "own": "/proc/self/root",
    }.items():
        (ws / name).symlink_to(target)
    return [
        "../out/secret",
        "a/../../out/secret",
        "a/b/../../../out/secret",
        "../../" + "/".join(home.parts[-1:]) + "/out/secret",
        f"{HIGH}{home}/out/secret",
        f"{home}/out/secret",
        f"//{home}/out/secret",
        f"{ws}/../out/secret",
        f"{ws}-other/secret",
        "/etc/passwd",
        "/dev/null",
        "link",
        "absolute",
        "folder/secret",
        "folder/d/../secret",
        "chain/out/secret",
        "chain/chain/chain/../out/secret",
        f"root{home}/out/secret",
        f"own{home}/out/secret",
        "../out/../ws/../out/secret",
        "folder/../ws/top",  # it would come back, but nothing outside is even looked at
    ]


def test_no_way_out_is_read_written_listed_or_searched(home: Path) -> None:
    files, before = FileTools(home / "ws"), open_files()
    for path in ways_out(home):
        for doing in DOINGS:
            with pytest.raises(PathRefused) as caught:
                doing(files, path)
            assert SECRET not in str(caught.value)
    assert sorted(each.name for each in (home / "out").rglob("*")) == ["d", "secret", "secret"]
    assert (home / "out/secret").read_text() == (home / "out/d/secret").read_text() == SECRET
    assert open_files() == before


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("a/loop", "leads over too many links"),
        ("a\0b", "has a character that no name can have"),
        ("\ud800", "has a character that no name can have"),
        ("a/" * 3000, "is too long; use at most 4,096 characters"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(home: Path, path: str, says: str) -> None:
    (home / "ws/a/loop").symlink_to("loop")
    with pytest.raises(PathRefused, match=says):
        Roots([home / "ws"]).folder(path)


def test_a_name_that_windows_reads_as_another_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = Roots([home / "ws"])
    monkeypatch.setattr(roots, "_WINDOWS", True)
    for name in ("file:stream", "dot.", "blank "):
        with pytest.raises(PathRefused, match="has a name that Windows reads differently"):
            folders.folder(name)


def test_folder_moved_before_its_way_up_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, real_open = tree(tmp_path / "ws", "a/b/", "a/file") / "a/b", os.open

    def moving(path: Any, *args: Any, **options: Any) -> int:
        if path == "..":
            folder.rename(tmp_path / "b")
        return real_open(path, *args, **options)

    monkeypatch.setattr(os, "open", moving)
    with pytest.raises(ToolFailed, match=r"a folder on the path .* was moved meanwhile"):
        FileTools(tmp_path / "ws").read("a/b/../file")


def test_links_that_lead_out_are_named_and_never_followed(home: Path) -> None:
    ways_out(home)
    files = FileTools(home / "ws")
    assert files.glob("**").split("\n") == sorted(
        ["a/", "a/b/", "a/file", "a/next", "a/up", "absolute", "chain", "folder", "link", "own", "root", "top"]
    )
    assert files.glob("folder/*").startswith("[nothing matches")
    assert files.grep("secret|inside") == "a/file\n1:inside\n\ntop\n1:inside"


def test_a_link_that_leads_nowhere_can_be_written_over_where_it_leads_inside(home: Path) -> None:
    (home / "ws/later").symlink_to("a/made/file")
    (home / "ws/never").symlink_to("../out/made")
    files = FileTools(home / "ws")
    with pytest.raises(ToolFailed):
        files.read("later")
    assert files.write("later", "text") == "made a/made/file: 4 bytes"
    assert (home / "ws/later").read_text() == "text"
    with pytest.raises(PathRefused):
        files.write("never", "text")
    assert not (home / "out/made").exists()


def test_several_folders_are_one_place_to_move_in(home: Path) -> None:
    tree(home / "more", "x/file", content="more\n")
    (home / "ws/across").symlink_to("../more/x")
    files = FileTools(home / "ws", home / "more", home / "ws/a")
    for path in ("across/file", "../more/x/file", f"{home}/more/x/file", f"{home}/ws/across/file"):
        assert files.read(path) == "1\tmore", path
    assert files.glob("**/file", path="../more") == f"{home}/more/x/file"
    with pytest.raises(PathRefused):
        files.read("across/../../out/secret")
    inner = FileTools(home / "ws/a", home / "ws")
    assert inner.read("file") == inner.read("../top") == "1\tinside"
    assert inner.glob("*", path="..").split("\n") == ["./", f"{home}/ws/across", f"{home}/ws/top"]


def test_pipes_devices_and_sockets_are_neither_waited_for_nor_replaced(home: Path) -> None:
    os.mkfifo(home / "ws/pipe")
    (home / "ws/to-pipe").symlink_to("pipe")
    files = FileTools(home / "ws")
    for path in ("pipe", "to-pipe"):
        for doing in (DOINGS[0], DOINGS[1], DOINGS[3], DOINGS[5]):
            with pytest.raises(ToolFailed, match="neither a file nor a folder"):
                doing(files, path)
    assert files.grep("inside", glob="*") == "a/file\n1:inside\n\ntop\n1:inside"
    with pytest.raises(ToolFailed, match="neither a file nor a folder"):
        FileTools(Path("/dev")).read("zero")


def test_without_a_folder_everything_is_refused_and_says_how_to_declare_one() -> None:
    files = FileTools()
    for doing in DOINGS:
        with pytest.raises(PathRefused, match=r"have no folder to access; .*BuiltinTools\(roots="):
            doing(files, ".")


def test_a_root_that_is_not_a_folder_is_refused(home: Path) -> None:
    for wrong in (home / "nothing", home / "ws/top", Path("a\0b")):
        with pytest.raises(InvalidArgument, match="create the folder first"):
            Roots([wrong])


# --- others who move things meanwhile -------------------------------------------------------------------------------


SWAP = """
import ctypes, os, sys
swap, first, second = ctypes.CDLL(None).renameat2, os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
print("begins", flush=True)
while not swap(-100, first, -100, second, 2):  # RENAME_EXCHANGE: neither name is ever missing
    pass
"""


@contextmanager
def swapped(first: Path, second: Path) -> Generator[None]:
    """Have another process swap two names all the time."""
    with subprocess.Popen([sys.executable, "-c", SWAP, first, second], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        try:
            yield
            assert process.poll() is None, "it must have swapped to the end"
        finally:
            process.kill()


RACES: list[Callable[[FileTools], str]] = [
    lambda files: files.read("d/secret"),
    lambda files: files.write("d/secret", "inside"),
    lambda files: files.write("d/new", "inside"),
    lambda files: files.edit("d/secret", "in", "in-"),
    lambda files: files.grep("e", path="d"),
    lambda files: files.read("d/../d/secret"),
    lambda files: files.write("d/more/new", "inside"),
    lambda files: files.glob("**", path="d"),
]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux swaps two names in one step")
def test_a_folder_swapped_for_a_link_during_use_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # nothing here is about what a disk keeps
    ws, out = tree(tmp_path / "ws", "d/secret", content="inside"), tree(tmp_path / "out", "secret", content=SECRET)
    (ws / "link").symlink_to("../out")
    files, seen = FileTools(ws), {"done": 0, "kept out": 0}
    with swapped(ws / "d", ws / "link"):
        for number in range(8000):
            try:
                said = RACES[number % len(RACES)](files)
                seen["done"] += 1
            except (PathRefused, ToolFailed) as error:
                said = str(error)
                seen["kept out"] += 1
            assert "outside" not in said
    assert os.listdir(out) == ["secret"]
    assert (out / "secret").read_text() == SECRET
    assert min(seen.values()) > 100, seen


class Moving:
    """A context that moves a folder away once it was asked a number of times whether the call is cancelled."""

    def __init__(self, asked: int, old: Path, new: Path) -> None:
        self._asked, self._old, self._new = asked, old, new

    @property
    def cancelled(self) -> bool:
        self._asked -= 1
        if self._asked == 0:
            self._old.rename(self._new)
        return False


@pytest.mark.parametrize("asked", [1, 4, 8, 11])
def test_folder_moved_out_during_a_search_is_not_left_by_its_new_way_up(tmp_path: Path, asked: int) -> None:
    """`..` of a folder that was moved is where it was moved to."""
    ws = tree(tmp_path / "ws", "d/deep/er/x", "d/secret", content="inside")
    tree(tmp_path / "out", "secret", "other", content=SECRET)
    files = FileTools(ws)
    files.context = Moving(asked, ws / "d/deep", tmp_path / "out/deep")
    for said in (outcome(lambda: files.grep("inside|outside")), outcome(lambda: files.glob("**"))):
        assert "outside" not in said
        assert "other" not in said


# --- random paths against a model -----------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "l", "m", "n", "ws", "out", "..", ".", ""]
RELATIVE = st.lists(st.sampled_from(NAMES), max_size=8).map("/".join)


@st.composite
def paths(draw: st.DrawFn) -> str:
    """A path; one from the root begins where the folders are."""
    path = draw(RELATIVE)
    return draw(st.sampled_from(["", "@/", "@/ws/", "@/out/"])) + path


class Model:
    """Where a path leads, found with strings and `os.readlink` alone; it never goes on from a place outside."""

    def __init__(self, root: str) -> None:
        self.root = root

    def inside(self, at: str) -> bool:
        return f"{at}/".startswith(f"{self.root}/")

    def above(self, at: str) -> bool:
        return self.root.startswith("/" if at == "/" else f"{at}/")

    def folder(self, path: str) -> str | None:
        """The folder, or "" where there is none; None where the path leaves."""
        at, todo, links = (self.root, path.split("/"), 0) if path[:1] != "/" else ("/", path.split("/"), 0)
        while todo:
            name = todo.pop(0)
            if name in ("", "."):
                continue
            inner = os.path.dirname(at) if name == ".." else os.path.join(at, name)
            if self.inside(inner) and os.path.islink(inner):
                links += 1
                if links > 40:
                    return None
                target = os.readlink(inner)
                at = "/" if target[:1] == "/" else at
                todo[:0] = target.split("/")
                continue
            if self.inside(inner) and not os.path.isdir(inner):
                return ""
            if not self.inside(inner) and not self.above(inner):
                return None
            at = inner
        return at if self.inside(at) else None


@given(
    folders=st.lists(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join), max_size=5),
    links=st.lists(st.tuples(st.sampled_from(["", "a/", "b/", "a/b/"]), st.sampled_from("lmn"), paths()), max_size=5),
    asked=st.lists(paths(), min_size=1, max_size=12),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_path_is_taken_if_and_only_if_it_stays_inside(
    tmp_path_factory: pytest.TempPathFactory, folders: list[str], links: list[tuple[str, str, str]], asked: list[str]
) -> None:
    home = tmp_path_factory.mktemp("paths").resolve()
    for folder in ("out/a", "out/b", "ws", *(f"ws/{each}" for each in folders)):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for folder, name, target in links:
        link = home / "ws" / folder / name
        if link.parent.is_dir() and not link.is_symlink():
            link.symlink_to(target.replace("@", str(home)) or ".")
    root, model, before = Roots([home / "ws"]), Model(str(home / "ws")), open_files()
    for each in asked:
        path = each.replace("@", str(home))
        expected = model.folder(path)
        try:
            found: str | None = str(root.folder(path))
        except PathRefused:
            found = None
        except ToolFailed:
            found = ""
        assert found == expected, path
        if found:
            assert found == os.path.realpath(home / "ws" / path)
    assert open_files() == before


# --- the home of an agent ---------------------------------------------------------------------------------------------


TOOLS = ("read_file", "write_file", "edit_file", "glob_files", "grep_content", "shell")
PLANTED = ("secret.key", "sub/deep.txt")


def agent(home: Path, *roots: Path) -> WorldAgent:
    tools = BuiltinTools(roots=roots)
    return scripted_agent(home, answering(), profile=Profile(name="p", tools=TOOLS), builtin_tools=tools)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "kept").mkdir(parents=True)
    (project / "kept" / "own.txt").write_text("a canary of the project")
    return project


async def test_home_below_a_root_is_out_of_reach_of_every_tool(project: Path) -> None:
    home = project / "kept" / "home"
    async with agent(home, project) as opened:
        (home / "secret.key").write_text("canary")
        (home / "sub").mkdir()
        (home / "sub" / "deep.txt").write_text("canary")
        (project / "link").symlink_to(home)
        (project / "file").symlink_to(home / "secret.key")
        (project / "kept" / "relative").symlink_to("../kept/./home/sub")
        os.link(home / "secret.key", project / "hard")
        before = {name: (home / name).read_bytes() for name in PLANTED}
        ways = [
            "kept/home/secret.key",
            "kept/home/agent.db",
            str(home / "secret.key"),
            "link/secret.key",
            "file",
            "kept/relative/deep.txt",
            "hard",
        ]
        for path in [*ways, "kept/home/sub/../secret.key", "kept/home/sub/../../own.txt"]:
            writes: list[tuple[str, dict[str, Any]]] = [("edit_file", {"path": path, "old": "canary", "new": "x"})]
            if path != "hard":  # it is a name of its own, and writing puts another file there
                writes.append(("write_file", {"path": path, "content": "x"}))
            for name, given in [("read_file", {"path": path}), *writes]:
                error = await failure(opened.call(name, given))
                assert isinstance(error, ToolFailed), (name, path)
                assert "it is in the home of the agent" in str(error), (name, path)
                assert "canary" not in str(error)
        for path in ("kept/home/new.txt", "kept/home/new/deep.txt", "link/new.txt"):
            assert isinstance(await failure(opened.call("write_file", {"path": path, "content": "x"})), ToolFailed)
        assert before == {name: (home / name).read_bytes() for name in PLANTED}
        assert not (home / "new.txt").exists()
        assert not (home / "new").exists()
        for folder in ("kept/home", "link", "kept/relative"):
            for name, given in (
                ("glob_files", {"pattern": "**", "path": folder}),
                ("grep_content", {"pattern": "canary", "path": folder}),
                ("shell", {"command": "ls", "cwd": folder}),
            ):
                assert isinstance(await failure(opened.call(name, given)), ToolFailed), (name, folder)
        listed = str(await opened.call("glob_files", {"pattern": "**"}))
        found = str(await opened.call("grep_content", {"pattern": "canary"}))
        assert "own.txt" in listed
        assert "kept/home" not in listed
        assert "own.txt" in found
        assert "secret.key" not in found
        assert "deep.txt" not in found
        assert "cannot be opened" not in listed


async def test_root_in_the_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    for root in (home, home / "inside", tmp_path / "link" / "inside"):
        with pytest.raises(InvalidArgument, match=r"is in the agent's home .*; use a folder outside of it"):
            agent(home, root)
    with pytest.raises(InvalidArgument):
        agent(tmp_path / "link", home / "inside")
