"""What `write_file` and `edit_file` leave behind: all or nothing, with what the file was otherwise."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.tools import FileTools, open_files, tree
from worldagent.core.errors import ToolFailed

pytestmark = pytest.mark.timeout(60)


def test_it_makes_a_file_with_the_folders_that_are_missing_and_replaces_one(tmp_path: Path) -> None:
    files, before = FileTools(tmp_path), open_files()
    assert files.write("a/b/c.txt", "é\r\n") == "made a/b/c.txt: 4 bytes"
    assert (tmp_path / "a/b/c.txt").read_bytes() == "é\r\n".encode()
    assert files.write(str(tmp_path / "a/b/c.txt"), "") == "replaced a/b/c.txt: 0 bytes"
    assert [each.name for each in tmp_path.rglob("*")] == ["a", "b", "c.txt"]
    assert open_files() == before


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


def test_what_cannot_be_finished_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    tree(tmp_path, "file")
    monkeypatch.setattr(os, "fsync", full)
    files = FileTools(tmp_path)
    doings: list[Callable[[], object]] = [
        lambda: files.write("file", "x"),
        lambda: files.write("new", "x"),
        lambda: files.edit("file", "text", "x"),
    ]
    for doing in doings:
        with pytest.raises(ToolFailed, match="no space left on device"):
            doing()
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "text\n"


# --- edits ----------------------------------------------------------------------------------------------------------


def test_an_edit_replaces_a_text_that_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one\ntwo\n\tthree two\n")
    files = FileTools(tmp_path)
    assert files.edit("file", "\tthree two", "  3\n4") == "replaced once in line 3 of file"
    assert (tmp_path / "file").read_text() == "one\ntwo\n  3\n4\n"
    assert files.edit("file", "one\n", "") == "replaced once in line 1 of file"
    assert (tmp_path / "file").read_text() == "two\n  3\n4\n"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("zero", "x", "the old text is not in 'file'; read the file"),
        ("1\tone", "x", "the old text is not in 'file'; omit the line numbers"),
        ("two", "x", "the old text occurs 2 times in 'file': in line 2, 3; include more of the text around it"),
        ("one", "one", "the same"),
    ],
)
def test_an_edit_that_is_not_clear_changes_nothing_and_says_why(tmp_path: Path, old: str, new: str, says: str) -> None:
    (tmp_path / "file").write_text(content := "one\ntwo\ntwo\naaa\n")
    with pytest.raises(ToolFailed) as caught:
        FileTools(tmp_path).edit("file", old, new)
    assert says in str(caught.value)
    assert (tmp_path / "file").read_text() == content


def test_all_places_are_replaced_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x\ntwo two\ntwo\n")
    assert FileTools(tmp_path).edit("file", "two", "2", replace_all=True) == "replaced 3 times, first in line 2 of file"
    assert (tmp_path / "file").read_text() == "x\n2 2\n2\n"


@pytest.mark.parametrize(
    ("content", "old", "new", "result"),
    [
        (b"a\r\nb\r\n", "a\nb", "a\nc\nb", b"a\r\nc\r\nb\r\n"),
        (b"a\r\nb\n", "b\n", "c\n", b"a\r\nc\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
    ],
)
def test_ends_of_lines_stay_as_the_file_has_them(
    tmp_path: Path, content: bytes, old: str, new: str, result: bytes
) -> None:
    (tmp_path / "file").write_bytes(content)
    FileTools(tmp_path).edit("file", old, new)
    assert (tmp_path / "file").read_bytes() == result


def test_a_file_that_another_program_saves_during_an_edit_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("text\n")

    def save(handle: int) -> None:
        (tmp_path / "file").write_text("text of somebody else\n")

    monkeypatch.setattr(os, "fsync", save)
    files = FileTools(tmp_path)
    with pytest.raises(ToolFailed, match="was changed meanwhile; read it again"):
        files.edit("file", "text", "mine")
    assert (tmp_path / "file").read_text() == "text of somebody else\n"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_file_that_another_program_keeps_locked_is_not_waited_for_without_end(tmp_path: Path) -> None:
    import fcntl

    tree(tmp_path, "file")
    with (tmp_path / "file").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ToolFailed, match="is locked by another program"):
            FileTools(tmp_path).write("file", "mine")
    assert FileTools(tmp_path).write("file", "mine") == "replaced file: 4 bytes"
