"""Loads workers from `NAME.worker.md` files. An error names the file and the line, and no worker is loaded partly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ..core.errors import WorkerInvalid
from ..core.files import read_limited
from .gate import Ceiling, policy_in
from .worker import Worker
from .yaml import LONGEST, YamlDocument, read_yaml

SUFFIX: Final = ".worker.md"
VERSION: Final = 1
_FENCE: Final = "---"
_CEILING_KEYS: Final = ("functions", "risk", "authority")

# The kinds of values: what an error says, and their types.
_TEXT: Final = ("a text", (str,))
_TEXTS: Final = ("a text or a list of texts", (str, list))
_NUMBER: Final = ("an integer", (int,))
_SCHEMA: Final = ("a JSON Schema", (dict,))
_SWITCH: Final = ("true or false", (bool,))
_MAPPING: Final = ("a mapping of names to values", (dict,))
_KEYS: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "worker": _NUMBER,
    "name": _TEXT,
    "description": _TEXT,
    "model": _TEXT,
    "about_role": _TEXT,
    "about_result": _TEXT,
    "prompt": _TEXT,
    "options": _MAPPING,
    "policy": _MAPPING,
    "ceiling": _MAPPING,
    "fallbacks": _TEXTS,
    "tools": _TEXTS,
    "input": _SCHEMA,
    "output": _SCHEMA,
    "risk": _TEXTS,
    "retries": _NUMBER,
    "max_steps": _NUMBER,
    "capabilities": _TEXTS,
    "capture": _SWITCH,
    "background": _SWITCH,
    "memory": _SWITCH,
}


def load_workers(*places: str | PathLike[str]) -> tuple[Worker, ...]:
    """Read workers from files.

    Args:
        places: Files named `NAME.worker.md`, and folders. All such files of a folder are read, in the order of names.

    Raises:
        WorkerInvalid: A file cannot be read, or two workers have the same name; the text names the file and the line.
        MissingExtra: The extra `yaml` is not installed.
    """
    found: dict[str, tuple[Path, Worker]] = {}
    for path in _files(places):
        worker = _read(path)
        if worker.name in found:
            raise WorkerInvalid(
                f"{str(path)!r} and {str(found[worker.name][0])!r} both name their worker {worker.name!r}",
                remedy="rename one of them",
            )
        found[worker.name] = path, worker
    return tuple(worker for _, worker in found.values())


def _files(places: Iterable[str | PathLike[str]]) -> Iterable[Path]:
    for place in map(Path, places):
        if not place.is_dir():
            yield place
            continue
        files = sorted(path for path in place.iterdir() if path.name.endswith(SUFFIX))
        if not files:
            raise WorkerInvalid(
                f"the folder {str(place)!r} has no worker files", remedy=f"put files named NAME{SUFFIX} there"
            )
        yield from files


def _read(path: Path) -> Worker:
    name = path.name.removesuffix(SUFFIX)
    if name == path.name or not name:
        raise WorkerInvalid(f"{str(path)!r} is not the name of a worker file", remedy=f"rename it to NAME{SUFFIX}")
    front, instructions, line = _parts(path, _data(path))
    document = read_yaml(front, name=str(path), error=WorkerInvalid, first_line=2, colons=True)
    given = _checked(document)
    if not instructions:
        raise WorkerInvalid(f"{path}:{line} has no instructions", remedy=f"write them below the second {_FENCE!r}")
    given.pop("worker", None)
    name = given.pop("name", name)
    if "policy" in given:
        given["policy"] = policy_in(document, "policy")
    if "ceiling" in given:
        document.check_keys(given["ceiling"], _CEILING_KEYS, "a ceiling", "ceiling")
        given["ceiling"] = document.made(partial(Ceiling, **given["ceiling"]), "ceiling")
    built: dict[str, Any] = {}
    for key in ("name", *sorted(given, key=lambda each: each != "input")):  # a prompt names fields of the input
        if key != "name":
            built[key] = given[key]
        document.made(partial(Worker, name, instructions, **built), key)  # one more key each time: each has its line
    return Worker(name, instructions, **given)


def _data(path: Path) -> bytes:
    data = read_limited(path, LONGEST)
    if isinstance(data, bytes):
        return data
    raise WorkerInvalid(f"the worker {str(path)!r} cannot be read: {data}", remedy="pass the path of a worker file")


def _parts(path: Path, data: bytes) -> tuple[bytes, str, int]:
    """Return the YAML, the instructions, and the line where the instructions begin."""
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    else:
        if not lines or lines[0].rstrip() != _FENCE:
            raise WorkerInvalid(
                f"{path}:1 has no front matter",
                remedy=f"begin the file with a line {_FENCE!r}, YAML, and a second line {_FENCE!r}",
            )
        for end, text in enumerate(lines[1:], 1):
            if text.rstrip() == _FENCE:
                return "\n".join(lines[1:end]).encode(), "\n".join(lines[end + 1 :]).strip(), end + 2
        raise WorkerInvalid(f"{path}:1 has front matter without an end", remedy=f"end it with a line {_FENCE!r}")
    raise WorkerInvalid(f"{path}:{line} is not UTF-8", remedy="save the file as UTF-8")


def _checked(document: YamlDocument[WorkerInvalid]) -> dict[str, Any]:
    """Return the values by key, after checking the kind of each."""
    data: object = {} if document.data is None else document.data
    if not isinstance(data, dict):
        raise document.invalid("the front matter must be a mapping", "write it as 'key: value' lines")
    document.check_keys(data, _KEYS, "a worker")
    for key, value in data.items():
        what, kinds = kind = _KEYS[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not _SWITCH):
            raise document.invalid(f"{key!r} must be {what}", f"write {what}", key)
    if data.get("worker", VERSION) != VERSION:
        problem = f"the file has version {data['worker']!r}, which is not supported"
        remedy = f"write it for version {VERSION}, or use a newer version of worldagent"
        raise document.invalid(problem, remedy, "worker")
    return dict(data)
