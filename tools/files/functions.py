"""The file tools as Functions, and their texts for models. `roots` keeps paths inside the folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Annotated, Any, Final

from pydantic import Field

from ...core.errors import InvalidArgument, PathRefused
from ...harness import Function, ToolContext, tool
from .roots import Roots, shown
from .text import LARGEST, Expression, Hits, Text, edited, numbered, too_large_error
from .walk import Pattern, Search, files, opened, replace, walk, write

_LEAST: Final = 1000
_NAMES: Final = 1000
"""The maximum number of names that `glob_files` returns."""

_READ: Final = (
    "Read a text file. Each line comes as its number, a tab and its text; number and tab are not in the file. "
    "What is too long is cut, and a note in brackets at the end says with which `offset` to continue."
)
_WRITE: Final = (
    "Write a text file: make it, with the folders that are missing, or replace all that is in it. To change a "
    "part of a file, use `edit_file`."
)
_EDIT: Final = (
    "Replace a text in a file. The old text must be in the file exactly once, unless `replace_all` is set: give "
    "enough of the text around it. Give it without the line numbers that `read_file` shows."
)
_GLOB: Final = (
    "Find files and folders by name: `*` and `?` within a name, `**` for any number of folders, `{a,b}` for one "
    "or the other. Gives one path a line, sorted; folders end with `/`. Names that begin with `.` are left out "
    "unless the pattern has the `.`, as in `.github/**`."
)
_GREP: Final = (
    "Search the text of files for lines that match a regular expression (RE2: no look-around, no "
    "back-references). Gives the path of each file and below it its lines, as number, `:` and text; lines around "
    "a match have `-`. A `glob` without `/` is for the file's name in any folder. Names that begin with `.` are "
    "left out unless `path` or `glob` has the `.`."
)

_FilePath = Annotated[
    str, Field(min_length=1, description="Path of the file: relative to the working folder, or absolute")
]
_FolderPath = Annotated[str, Field(description="Folder to look in: relative to the working folder, or absolute")]
_Glob = Annotated[str, Field(min_length=1, max_length=500)]


def file_functions(roots: Roots, *, limit: int = 30_000) -> tuple[Function, ...]:
    """Make `read_file`, `write_file`, `edit_file`, `glob_files` and `grep_content`.

    Args:
        roots: The folders that they work in.
        limit: How many characters a result can have, at least 1,000.

    Raises:
        InvalidArgument: `limit` is lower.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < _LEAST:
        raise InvalidArgument(f"`limit` must be an integer of at least {_LEAST:,}, got {limit!r}", remedy="raise it")
    return (
        _read_file(roots, limit),
        _write_file(roots),
        _edit_file(roots),
        _glob_files(roots, limit),
        _grep_content(roots, limit),
    )


def _place(roots: Roots) -> Callable[[Mapping[str, Any]], str | None]:
    """Returns the place of a call; None if its path leads nowhere."""

    def place(arguments: Mapping[str, Any]) -> str | None:
        try:
            return roots.where(arguments["path"])
        except PathRefused:
            return None

    return place


def _read_file(roots: Roots, limit: int) -> Function:
    @tool(description=_READ, risk="read_only", idempotent=True, place=_place(roots))
    def read_file(
        ctx: ToolContext,
        path: _FilePath,
        offset: Annotated[int, Field(ge=0, description="How many lines to leave out at the beginning")] = 0,
        lines: Annotated[int, Field(ge=1, le=100_000, description="How many lines to read at most")] = 2000,
    ) -> str:
        with roots.place(path) as place, opened(place) as found:
            search = Search(lambda: ctx.cancelled)
            return numbered(found.file, path, offset=offset, lines=lines, limit=limit, search=search)

    return read_file


def _write_file(roots: Roots) -> Function:
    @tool(description=_WRITE, risk="write", idempotent=True, place=_place(roots))
    def write_file(
        path: _FilePath,
        content: Annotated[str, Field(max_length=LARGEST, description="The full content, written as it is")],
    ) -> str:
        data = content.encode()
        if len(data) > LARGEST:
            raise too_large_error(path)
        with roots.place(path, make=True) as place:
            existed = write(place, data)
            return f"{'replaced' if existed else 'made'} {roots.name(place.path)}: {len(data):,} bytes"

    return write_file


def _edit_file(roots: Roots) -> Function:
    @tool(description=_EDIT, risk="write", place=_place(roots))
    def edit_file(
        path: _FilePath,
        old: Annotated[str, Field(min_length=1, description="The text to replace, exactly as it is in the file")],
        new: Annotated[
            str, Field(max_length=LARGEST, description="The text to put there; empty to remove the old one")
        ],
        replace_all: Annotated[bool, Field(description="Replace it everywhere, not just where it is alone")] = False,
    ) -> str:
        with roots.place(path) as place, opened(place, writable=True) as found:
            content = found.file.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise too_large_error(path)
            result = edited(content, path, old=old, new=new, replace_all=replace_all)
            replace(place, result.content, found)
            times = "once" if result.count == 1 else f"{result.count:,} times, first"
            return f"replaced {times} in line {result.line} of {roots.name(place.path)}"

    return edit_file


def _glob_files(roots: Roots, limit: int) -> Function:
    @tool(description=_GLOB, risk="read_only", idempotent=True, place=_place(roots))
    def glob_files(
        ctx: ToolContext,
        pattern: Annotated[_Glob, Field(description="Such as '*', '**/*.py', 'src/**' or '**/*.{ts,tsx}'")],
        path: _FolderPath = ".",
    ) -> str:
        search = Search(lambda: ctx.cancelled)
        wanted = Pattern(pattern)
        text, cut = Text(limit), 0
        with roots.place(path, folder=True) as place:
            for found in walk(place.handle, wanted, search):
                name = roots.name(place.path.joinpath(*found.names))
                cut += 1
                if cut > _NAMES or not text.add(name + "/" * found.folder):
                    return text.ended(f"cut after {cut - 1:,} names: use a narrower pattern", *search.notes)
        return text.ended("" if text else f"nothing matches in {shown(path)}", *search.notes)

    return glob_files


def _grep_content(roots: Roots, limit: int) -> Function:
    @tool(description=_GREP, risk="read_only", idempotent=True, place=_place(roots))
    def grep_content(
        ctx: ToolContext,
        pattern: Annotated[
            str,
            Field(
                min_length=1,
                max_length=500,
                description="Regular expression for a line; begin with (?i) to ignore case",
            ),
        ],
        path: Annotated[
            str, Field(description="File or folder to search: relative to the working folder, or absolute")
        ] = ".",
        glob: Annotated[_Glob, Field(description="Which files of a folder, such as '*.py' or 'src/**/*.ts'")] = "*",
        context: Annotated[
            int, Field(ge=0, le=20, description="How many lines to show before and after each match")
        ] = 0,
        max_matches: Annotated[int, Field(ge=1, le=1000, description="How many matches to show at most")] = 100,
    ) -> str:
        expression, search = Expression(pattern), Search(lambda: ctx.cancelled)
        hits = Hits(Text(limit), context, max_matches)
        wanted = Pattern(glob if "/" in glob else f"**/{glob}")
        with closing(files(roots, path, wanted, search)) as found:
            for name, file in found:
                hits.look(name, file, expression, search.check_limits)
                if hits.full:
                    break
        return hits.result(path, search)

    return grep_content
