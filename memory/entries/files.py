"""Files as entries: their paragraphs are facts of the workspace, and follow the files (M1)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ...core import digest
from ...core.errors import InvalidArgument, UnknownEntry
from ...core.files import read_limited
from .entry import MAX_ENTRY_CHARACTERS, Draft, Reader, Source
from .store import Entries

SUFFIXES: Final = (".md", ".txt")
MAX_FILES: Final = 1000
MAX_FILE_BYTES: Final = 1_000_000
_PART_CHARACTERS: Final = 1000  # paragraphs are joined up to this length, so that an entry says one thing


async def follow_files(entries: Entries, workspace: str, places: Sequence[Path]) -> None:
    """Make the entries of files those that the files have now: new ones are written, and those of old texts deleted.

    Args:
        entries: The entries.
        workspace: The workspace, whose entries they are.
        places: Files and folders. Of a folder, all files with one of `SUFFIXES` are read, and those of its folders.

    Raises:
        InvalidArgument: A place does not exist, a file is too large or not a text, or they are too many.
    """
    drafts = [draft for name, path in _files(places) for draft in _drafts(name, path)]
    made = {entry.id for entry in await entries.add(workspace, drafts)} if drafts else set()
    while gone := [entry_id for entry_id in await _ids(entries, workspace) if entry_id not in made]:
        with contextlib.suppress(UnknownEntry):  # another process that opens has deleted some of them
            await entries.forget(workspace, gone)


async def _ids(entries: Entries, workspace: str) -> list[str]:
    """The ids of all entries that are of files."""
    reader, last, found = Reader(workspace=workspace), None, list[str]()
    while page := await entries.list(reader, limit=1000, before=last):
        found += [entry.id for entry in page if entry.source.by == "file"]
        last = page[-1]
    return found


def _files(places: Sequence[Path]) -> list[tuple[str, Path]]:
    """The files with their names: the path below the folder of a place, so that it is the same on all machines."""
    found: dict[str, Path] = {}
    for place in places:
        if place.is_dir():
            files = sorted(path for path in place.rglob("*") if path.is_file() and path.suffix in SUFFIXES)
        elif place.is_file():
            files = [place]
        else:
            raise InvalidArgument(f"there is no file or folder {str(place)!r}", remedy="name one that exists")
        found |= {str(path.relative_to(place.parent)): path for path in files}
    if len(found) > MAX_FILES:
        raise InvalidArgument(
            f"{len(found):,} files are too many for memory, at most {MAX_FILES:,} are read", remedy="name fewer"
        )
    return list(found.items())


def _drafts(name: str, path: Path) -> Iterator[Draft]:
    content = read_limited(path, MAX_FILE_BYTES)
    try:
        text = None if isinstance(content, str) or b"\0" in content else content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    if text is None:
        why = content if isinstance(content, str) else "it must be UTF-8 text"
        raise InvalidArgument(f"the file {name!r} cannot be remembered: {why}", remedy="leave it out, or split it")
    mark = digest(text)
    for place, part in enumerate(_parts(text)):
        source = Source(by="file", path=name, digest=mark)
        yield Draft(text=part, kind="fact", source=source, key=f"file/{name}/{mark}/{place}")


def _parts(text: str) -> Iterator[str]:
    """Paragraphs, joined up to a length that is good to find."""
    part = ""
    for paragraph in filter(None, (each.strip() for each in text.split("\n\n"))):
        if part and len(part) + len(paragraph) + 2 > _PART_CHARACTERS:
            yield part
            part = ""
        part = f"{part}\n\n{paragraph}" if part else paragraph
        while len(part) > MAX_ENTRY_CHARACTERS:
            yield part[:MAX_ENTRY_CHARACTERS]
            part = part[MAX_ENTRY_CHARACTERS:]
    if part.strip():
        yield part
