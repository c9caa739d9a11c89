"""What `glob_files` and `grep_content` find, in which order, and how far they go."""

import glob
import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.tools import FileTools, open_files, tree
from worldagent.core.errors import PathRefused, ToolFailed
from worldagent.tools.files import text as search
from worldagent.tools.files import walk

pytestmark = pytest.mark.timeout(90)
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    return tree(
        tmp_path, "a.py", "b.txt", "src/a.py", "src/deep/er/b.py", "src/deep/c.ts", "src/d.tsx", ".env", ".git/config",
        ".github/workflows/ci.yml", "src/.cache/x.py", "empty/",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.{ts,tsx}", "src/d.tsx src/deep/c.ts"),
        ("{src/deep,.}/*.{py,{ts,txt}}", "a.py b.txt src/deep/c.ts"),
        ("src/**", "src/a.py src/d.tsx src/deep/ src/deep/c.ts src/deep/er/ src/deep/er/b.py"),
        ("./src//?.py", "src/a.py"),
        (".github/**", ".github/workflows/ .github/workflows/ci.yml"),
        ("{a.py,a.*,*.py}", "a.py"),
    ],
)
def test_a_pattern_finds_what_it_would_in_a_shell(ws: Path, pattern: str, found: str) -> None:
    assert FileTools(ws).glob(pattern).split("\n") == found.split(" ")


NAMES = st.sampled_from(["a", "b", "ab", ".h", "a.py", "c"])
PARTS = st.sampled_from(["*", "?", "a", "b*", "**", ".h", "[ab]*", "*.py", ".*", "a*b"])


@given(
    files=st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=12),
    pattern=st.lists(PARTS, min_size=1, max_size=4),
)
@QUICK
def test_finds_like_glob(tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], pattern: list[str]) -> None:
    home = tmp_path_factory.mktemp("glob")
    for names in files:
        path = home.joinpath(*names)
        if not any(each.is_file() for each in (path, *path.parents)):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.touch()
    asked = "/".join([*pattern, "*"] if pattern[-1] == "**" else pattern)
    expected = set(glob.glob(asked, root_dir=home, recursive=True))
    said = FileTools(home).glob("/".join(pattern))
    found = [] if said.startswith("[") else said.split("\n")
    assert {each.rstrip("/") for each in found} == {each.rstrip("/") for each in expected}
    assert found == sorted(found, key=lambda each: each.rstrip("/").split("/"))
    assert all(each.endswith("/") == (home / each).is_dir() for each in found)


@pytest.mark.parametrize("pattern", ["/etc/*", "a/../../*", "{a,..}/*"])
def test_a_pattern_does_not_lead_out(ws: Path, pattern: str) -> None:
    for doing in (FileTools(ws).glob, lambda glob: FileTools(ws).grep("x", glob=glob)):
        with pytest.raises(PathRefused, match="name the folder in 'path'"):
            doing(pattern)


@pytest.mark.parametrize(
    ("pattern", "says"), [("./", "matches nothing"), ("{a,b}" * 7, "expands to too many patterns")]
)
def test_a_pattern_of_nothing_or_too_much_is_refused(ws: Path, pattern: str, says: str) -> None:
    with pytest.raises(ToolFailed, match=says):
        FileTools(ws).glob(pattern)


def test_a_pattern_with_many_parts_is_matched_with_many_names_in_little_time(tmp_path: Path) -> None:
    """All of its parts are compared with each name, and most of them are the same."""
    below = tmp_path.joinpath(*["d"] * 40)
    below.mkdir(parents=True)
    tree(below, *(f"f{number}" for number in range(1500)))
    began = time.process_time()
    found = FileTools(tmp_path).glob("**/?*/" * 70 + "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}")
    assert found == "[nothing matches in '.']"
    assert time.process_time() - began < 3


def test_many_names_are_cut_with_a_note(tmp_path: Path) -> None:
    tree(tmp_path, *(f"{number:04}" for number in range(1500)))
    said = FileTools(tmp_path).glob("*").split("\n")
    assert said == [*(f"{number:04}" for number in range(1000)), "[cut after 1,000 names: use a narrower pattern]"]
    assert len(FileTools(tmp_path, limit=1000).glob("*")) <= 1000


def test_names_that_would_break_a_line_are_written_as_python_writes_them(tmp_path: Path) -> None:
    tree(tmp_path, "a\nb", "c\x1b[2J")
    (tmp_path / os.fsdecode(b"d\xff")).touch()
    assert FileTools(tmp_path).glob("*") == "a\\nb\nc\\x1b[2J\nd\\udcff"
    assert FileTools(tmp_path).grep("text").split("\n")[0] == "a\\nb"


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A tree of 3,000 folders below each other, with a file in three of them."""
    handle = os.open(tmp_path, os.O_RDONLY)
    for number in range(3000):
        if number in (5, 1000, 2500):
            os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    yield tmp_path
    part = tmp_path / "d"
    for number in count():  # in parts: what cleans up goes no deeper than Python's stack
        below = part.joinpath(*["d"] * 200)
        if not below.exists():
            return
        part = below.rename(tmp_path / f"part-{number}")


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be opened there")
def test_a_tree_of_any_depth_is_walked_with_one_folder_open_at_a_time(deep: Path) -> None:
    files, before = FileTools(deep), open_files()
    found, note = files.glob("**/leaf").rsplit("\n", 1)
    assert [each.count("/") for each in found.split("\n")] == [1000, 5]
    assert note == "[folders or files that cannot be opened: 1]"
    assert files.read(found.split("\n")[0]) == "[the file is empty]"
    assert files.grep("x").startswith("[no line matches in 2 files")
    assert open_files() == before


# --- searching ------------------------------------------------------------------------------------------------------


def test_matches_come_by_file_with_numbers_and_context(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 13)))
    (tmp_path / "b.txt").write_bytes("\tcafé 12\r\nlast".encode())
    files = FileTools(tmp_path)
    assert files.grep(r"\b(2|3|12)$") == "a.txt\n2:line 2\n3:line 3\n12:line 12\n\nb.txt\n1:\tcafé 12"
    assert files.grep(r"\b(2|4|12)$", context=1) == (
        "a.txt\n1-line 1\n2:line 2\n3-line 3\n4:line 4\n5-line 5\n--\n11-line 11\n12:line 12\n\n"
        "b.txt\n1:\tcafé 12\n2-last"
    )
    assert files.grep("(?i)CAF.", path="b.txt") == "b.txt\n1:\tcafé 12"
    assert files.grep("^last$", glob="*.txt") == "b.txt\n2:last"
    assert files.grep("line", max_matches=2) == (
        "a.txt\n1:line 1\n2:line 2\n[there are more matches: use a narrower expression, path or glob]"
    )
    assert (
        files.grep("line 1|last", max_matches=5)
        == "a.txt\n1:line 1\n10:line 10\n11:line 11\n12:line 12\n\nb.txt\n2:last"
    )
    assert files.grep("2[^x]line") == "[no line matches in 2 files below '.']"


@given(
    lines=st.lists(st.text("ab é\t", max_size=20), max_size=60),
    end=st.sampled_from(["", "\n", "\r\n"]),
    pattern=st.sampled_from(["a", "^a", "b$", "^$", "a.b", "é", r"\s", "(a|b)+ ", "[^a]b", "x", "^", "a*"]),
    block=st.integers(50, 90),
)
@QUICK
def test_it_finds_the_lines_that_pythons_own_expressions_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], end: str, pattern: str, block: int
) -> None:
    content = (end or "\n").join(lines) + end
    (tmp_path / "file").write_bytes(content.encode())
    monkeypatch.setattr(search, "_BLOCK", block)
    there = content.replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
    expected = [f"{number}:{line}" for number, line in enumerate(there, 1) if re.search(pattern, line)]
    said = FileTools(tmp_path).grep(pattern, max_matches=1000)
    assert said.split("\n") == (["file", *expected] if expected else ["[no line matches in 1 files below '.']"])


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:a?){40}a{40}b", "(((a{1,30}){1,30})+)+b"])
def test_an_expression_with_catastrophic_backtracking_ends(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "file").write_text(f"{'a' * 40}!\n{'a' * 30_000}!\n")
    try:
        FileTools(tmp_path).grep(pattern)
    except ToolFailed as error:
        assert re.search("cannot be used|stopped after", str(error))  # noqa: PT017 - both ends are right


@pytest.mark.parametrize("pattern", ["(", "a{2000}", "(?<=a)b"])
def test_an_invalid_expression_fails_with_the_reason(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ToolFailed, match=r"the expression .* cannot be used: \S.*; .*look-around"):
        FileTools(tmp_path).grep(pattern)


def test_a_search_that_takes_too_long_says_that_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, *(f"{number}/file" for number in range(9)))
    files = FileTools(tmp_path)
    clock = count()
    monkeypatch.setattr(walk, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    said = files.grep("text")
    assert "0/file\n1:text" in said
    assert "8/file" not in said
    assert "[stopped after 10 seconds, and the search is incomplete: name a folder further down" in said
    with pytest.raises(ToolFailed, match=r"nothing was found in .* files: stopped after 10 seconds; name a folder"):
        files.grep("nothing")
    assert "[stopped after 10 seconds" in files.glob("**")


@given(
    names=st.lists(st.text("ab", min_size=1, max_size=60), min_size=1, max_size=20, unique=True),
    width=st.integers(1, 600),
    limit=st.integers(1000, 3000),
    context=st.integers(0, 3),
)
@QUICK
def test_no_result_is_over_the_limit(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], width: int, limit: int, context: int
) -> None:
    home = tree(tmp_path_factory.mktemp("limit"), *names, content=("é" * width + "\n") * 9)
    files = FileTools(home, limit=limit)
    assert len(files.glob("*")) <= limit
    said = files.grep("é", context=context)
    assert len(said) <= limit
    assert ("there are more matches" in said) == (said.count(":é") < 9 * len(names))
