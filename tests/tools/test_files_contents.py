"""What `read_file` gives of files of every kind and size, and what `write_file` and `edit_file` leave of them."""

import os
import re
import stat
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.agents import scripted_agent
from support.tools import FileTools, open_files, outcome, tree
from worldagent.core.errors import InvalidArgument, ParamsInvalid, PathRefused, ToolFailed
from worldagent.testing import ScriptedLM
from worldagent.tools.files import Roots, file_functions, walk

pytestmark = pytest.mark.timeout(60)


async def test_an_agent_calls_them_as_any_function(tmp_path: Path) -> None:
    tree(tmp_path / "ws", "a/file", content="one\ntwo\n")
    functions = file_functions(Roots([tmp_path / "ws"]))
    assert [(each.name, each.risk, each.idempotent) for each in functions] == [
        ("read_file", ("read_only",), True),
        ("write_file", ("write",), True),
        ("edit_file", ("write",), False),
        ("glob_files", ("read_only",), True),
        ("grep_content", ("read_only",), True),
    ]
    async with scripted_agent(tmp_path / "home", ScriptedLM([]), tools=functions) as agent:
        assert await agent.call("read_file", {"path": "a/file"}) == "1\tone\n2\ttwo"
        with pytest.raises(PathRefused):
            await agent.call("read_file", {"path": "../home"})
        with pytest.raises(ParamsInvalid):
            await agent.call("read_file", {"path": "a/file", "offset": -1})


@given(
    content=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff"), max_size=400)
    ),
    limit=st.integers(1000, 3000),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_give_every_line_within_the_limit(tmp_path: Path, content: list[str], limit: int) -> None:
    (tmp_path / "file").write_text("".join(f"{line}\n" for line in content), newline="")
    files, lines, offset = FileTools(tmp_path, limit=limit), list[str](), 0
    while offset < len(content):
        said = files.read("file", offset=offset, lines=7)
        assert len(said) <= limit
        got = [each for each in said.split("\n") if not each.startswith("[")]
        assert [int(each.partition("\t")[0]) for each in got] == [*range(offset + 1, offset + len(got) + 1)]
        lines += [each.partition("\t")[2] for each in got]
        offset += len(got)
        assert (f"offset={offset}]" in said) == (offset < len(content))
    assert lines == content


def test_a_line_that_is_too_long_is_cut_and_what_comes_after_it_can_be_read(tmp_path: Path) -> None:
    line, limit = "🙂" * 2000, 1000
    (tmp_path / "file").write_text(f"first\n{line}\nlast\n", encoding="utf-8")
    files = FileTools(tmp_path, limit=limit)
    assert files.read("file").startswith("1\tfirst\n[")
    said = files.read("file", offset=1)
    assert said.startswith(f"2\t{line[:100]}")
    assert "line 2 is longer than" in said
    assert said.endswith("read with offset=2]")
    assert len(said) <= limit
    assert files.read("file", offset=2) == "3\tlast"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such figure")
def test_a_huge_file_is_read_without_being_held_in_memory(tmp_path: Path) -> None:
    import resource

    with (tmp_path / "file").open("wb") as file:
        file.write(b"first\n" + b"x" * 999 + b"\n")
        file.truncate(300_000_000)  # a hole: it takes no room on the disk
        file.seek(0, 2)
        file.write(b"\nlast\n")
    files = FileTools(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert files.read("file", lines=1).startswith("1\tfirst\n[the file continues")
    for said in (
        outcome(lambda: files.read("file", offset=2, lines=1)),
        outcome(lambda: files.edit("file", "first", "second")),
    ):
        assert re.search("not text in UTF-8|larger than", said)
    assert files.grep("first").endswith("[files skipped because they are not text: 1]")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # in units of 1,024 bytes


@pytest.mark.parametrize("content", [b"caf\xe9\n", b"a\0b", b"\xed\xa0\x80"])
def test_a_file_that_is_not_utf_8_fails_without_its_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    files = FileTools(tmp_path)
    for said in (outcome(lambda: files.read("file")), outcome(lambda: files.edit("file", "a", "b"))):
        assert "'file' is not text in UTF-8; " in said
        assert "caf" not in said
    assert (tmp_path / "file").read_bytes() == content


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", "[the file is empty]"),
        (b"a\r\nb\r\n", "1\ta\n2\tb"),
        (b"\xef\xbb\xbfa\n", "1\ta"),
        ("a\u2028b\x0cc\n".encode(), "1\ta\u2028b\x0cc"),
    ],
)
def test_lines_end_where_a_newline_is(tmp_path: Path, content: bytes, shown: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert FileTools(tmp_path).read("file") == shown


def test_a_cancelled_call_stops_soon(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x\n" * 5000)
    files = FileTools(tmp_path)
    files.context.cancelled = True
    assert len(files.read("file").split("\n")) < 1100
    assert "was cancelled" in outcome(lambda: files.grep("y"))
    assert "was cancelled" in outcome(lambda: files.glob("*y"))


def test_lines_that_are_not_reached_in_time_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x\n" + bytes(50 << 20))
    clock = count()
    monkeypatch.setattr(walk, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    files = FileTools(tmp_path)
    with pytest.raises(ToolFailed, match=r"line 49,000 of 'file' was not reached: stopped after 10 seconds"):
        files.read("file", offset=48_999)
    assert files.read("file", lines=1).startswith("1\tx\n[the file continues")


def test_it_makes_a_file_with_the_folders_that_are_missing_and_replaces_one(tmp_path: Path) -> None:
    files, before = FileTools(tmp_path), open_files()
    assert files.write("a/b/c.txt", "é\r\n") == "made a/b/c.txt: 4 bytes"
    assert (tmp_path / "a/b/c.txt").read_bytes() == "é\r\n".encode()
    assert files.write(str(tmp_path / "a/b/c.txt"), "") == "replaced a/b/c.txt: 0 bytes"
    assert [each.name for each in tmp_path.rglob("*")] == ["a", "b", "c.txt"]
    assert open_files() == before


def test_sizes_and_offsets_out_of_range_are_refused(tmp_path: Path) -> None:
    files = FileTools(tree(tmp_path, "file"))
    with pytest.raises(ToolFailed, match="'new' is, or would be, larger than"):
        files.write("new", "\u20ac" * 4_000_000)
    with pytest.raises(ToolFailed, match="'file' has only 1 lines"):
        files.read("file", offset=1)
    with pytest.raises(InvalidArgument, match="`limit` must be an integer of at least 1,000, got 999"):
        file_functions(Roots([tmp_path]), limit=999)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("mode", [0o640, 0o4755])
def test_the_mode_stays_and_no_more_than_that(tmp_path: Path, mode: int) -> None:
    path = tree(tmp_path, "file") / "file"
    path.chmod(mode)
    files = FileTools(tmp_path)
    files.write("file", "text")
    assert stat.S_IMODE(path.stat().st_mode) == mode & 0o777
    files.edit("file", "text", "other")
    assert stat.S_IMODE(path.stat().st_mode) == mode & 0o777


def test_a_hard_link_to_something_outside_is_cut_and_not_written_through(tmp_path: Path) -> None:
    tree(tmp_path, "ws/", "out")
    os.link(tmp_path / "out", tmp_path / "ws/file")
    files = FileTools(tmp_path / "ws")
    files.edit("file", "text", "mine")
    files.write("file", "mine")
    assert (tmp_path / "out").read_text() == "text\n"


def test_an_unfinished_write_keeps_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    tree(tmp_path, "file")
    monkeypatch.setattr(os, "fsync", full)
    files = FileTools(tmp_path)
    for said in (
        outcome(lambda: files.write("file", "x")),
        outcome(lambda: files.write("new", "x")),
        outcome(lambda: files.edit("file", "text", "x")),
    ):
        assert "no space left on device" in said
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "text\n"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("zero", "x", "the old text is not in 'file'; read the file"),
        ("1\tone", "x", "the old text is not in 'file'; omit the line numbers"),
        ("two", "x", "the old text occurs 2 times in 'file': in line 2, 3; include more of the text around it"),
        ("one", "one", "the same"),
        ("a", "x" * 4_000_000, "'file' is, or would be, larger than"),
    ],
)
def test_an_edit_that_is_not_clear_changes_nothing_and_says_why(tmp_path: Path, old: str, new: str, says: str) -> None:
    (tmp_path / "file").write_text(content := "one\ntwo\ntwo\naaa\n")
    with pytest.raises(ToolFailed) as caught:
        FileTools(tmp_path).edit("file", old, new, replace_all=old == "a")
    assert says in str(caught.value)
    assert (tmp_path / "file").read_text() == content


@pytest.mark.parametrize(
    ("content", "old", "new", "result", "where"),
    [
        (b"one\ntwo\n\tthree two\n", "\tthree two", "  3\n4", b"one\ntwo\n  3\n4\n", "once in line 3"),
        (b"one\ntwo\n", "one\n", "", b"two\n", "once in line 1"),
        (b"x\ntwo two\ntwo\n", "two", "2", b"x\n2 2\n2\n", "3 times, first in line 2"),
        (b"a\r\nb\r\n", "a\nb", "a\nc\nb", b"a\r\nc\r\nb\r\n", "once in line 1"),
        (b"a\r\nb\n", "b\n", "c\n", b"a\r\nc\n", "once in line 2"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n", "once in line 1"),
    ],
)
def test_edit_keeps_line_ends(tmp_path: Path, content: bytes, old: str, new: str, result: bytes, where: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert FileTools(tmp_path).edit("file", old, new, replace_all=old == "two") == f"replaced {where} of file"
    assert (tmp_path / "file").read_bytes() == result


def test_edit_keeps_what_another_program_saved_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("text\n")

    def save(handle: int) -> None:
        (tmp_path / "file").write_text("text of another program\n")

    monkeypatch.setattr(os, "fsync", save)
    files = FileTools(tmp_path)
    with pytest.raises(ToolFailed, match="was changed meanwhile; read it again"):
        files.edit("file", "text", "mine")
    assert (tmp_path / "file").read_text() == "text of another program\n"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
def test_a_file_that_stays_locked_is_given_up(tmp_path: Path) -> None:
    import fcntl

    tree(tmp_path, "file")
    with (tmp_path / "file").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ToolFailed, match="is locked by another program"):
            FileTools(tmp_path).write("file", "mine")
    assert FileTools(tmp_path).write("file", "mine") == "replaced file: 4 bytes"
