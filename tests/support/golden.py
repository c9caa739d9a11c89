"""What others rely on, as text: public names, the command line, the schemas of both servers.

The files in `tests/golden` hold it, and a test compares. `PYTHONPATH=.dev:tests python -P tests/support/golden.py`
writes them: a change of what others rely on is then a change of these files, which a reviewer sees. It also writes the
tables of errors, events, settings and services into the pages, the page of commands, and the drawing in the README.
"""

import asyncio
import dataclasses
import enum
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer
from pydantic import BaseModel

import worldagent
from support import drawing
from support.house import ROOT
from support.pages import DOCS, TABLES, pages, write_rows
from worldagent import Settings
from worldagent.core import errors, events
from worldagent.hosts import role_host, sidecar
from worldagent.hosts.cli.app import app

FOLDER: Final = Path(__file__).parent.parent / "golden"
_IMPORT: Final = re.compile(r"^[ >]*from (worldagent[\w.]*) import (?:\(([^)]+)\)|([\w, ]+))", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_ADDRESS: Final = re.compile(r"<(?:function )?([\w.<>]+) at 0x\w+>")


# --- public names -----------------------------------------------------------------------------------------------------


def public_names() -> str:
    """Each public name with its signature, by the module that pages import it from; `__all__` alone says less."""
    lines: list[str] = []
    for module, names in sorted(_imported().items()):
        found = importlib.import_module(module)
        lines += ["", module, *(line for name in sorted(names) for line in _name(name, getattr(found, name)))]
    return "\n".join(lines[1:]) + "\n"


def _imported() -> dict[str, set[str]]:
    """What the package itself exports, and what README, pages and examples import."""
    found = {"worldagent": set(worldagent.__all__)}
    for text in [*(page.read_text(encoding="utf-8") for page in pages()), *map(_read, ROOT.glob("examples/**/*.py"))]:
        for module, in_brackets, in_line in _IMPORT.findall(text):
            found.setdefault(module, set()).update(_WORD.findall(in_brackets or in_line))
    return found


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _name(name: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"  {name}{_signature(value)}"
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    yield f"  class {name}({bases})"
    if issubclass(value, enum.Enum):
        yield f"    {', '.join(value.__members__)}"
        return
    if not issubclass(value, BaseException):
        yield f"    (){_signature(value)}"
    for member in sorted(vars(value)):
        if not member.startswith("_"):
            yield f"    {member}{_member(value, member)}"


def _member(owner: type, name: str) -> str:
    """Its signature or type, and for a class attribute its value."""
    value = inspect.getattr_static(owner, name)
    if isinstance(value, property):
        return f": {getattr(value.fget, '__annotations__', {}).get('return', '')}"
    if isinstance(value, staticmethod | classmethod):
        return _signature(value.__func__)
    if inspect.isfunction(value):
        return _signature(value)
    if dataclasses.is_dataclass(owner) or inspect.isdatadescriptor(value):
        return ""  # the constructor has its type
    return f" = {value!r}" if isinstance(value, str | int | bool | None) else ""


def _signature(value: Any) -> str:
    if not callable(value):
        return f": {type(value).__name__}"
    try:
        shown = _ADDRESS.sub(r"<\1>", str(inspect.signature(value)))
        return shown.replace("_PydanticGeneralMetadata(allow_inf_nan", "AllowInfNan(allow_inf_nan")  # in older pydantic
    except (TypeError, ValueError):  # a type of its library's own making
        return ""


# --- the command line -------------------------------------------------------------------------------------------------


def command_line() -> str:
    """Each command with its arguments and options."""
    return "\n".join(line for path, command in sorted(_commands()) for line in (path, *_given(command))) + "\n"


def _given(command: Any) -> Iterator[str]:
    for given in command.params:
        names = " ".join([*given.opts, *given.secondary_opts])
        flag = getattr(given, "is_flag", False)
        value = "" if flag else f" {given.metavar or given.bare_type.__name__.upper()}"
        many = " ..." if given.multiple or given.nargs != 1 else ""
        yield f"  {names}{value}{many}{' (required)' if given.required else ''}"


def _commands(path: str = "worldagent", command: Any = None) -> Iterator[tuple[str, Any]]:
    """Every command by its path."""
    command = command or typer.main.get_command(app)
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", each)


# --- the page of commands ---------------------------------------------------------------------------------------------

PAGE: Final = ROOT / "docs" / "reference" / "commands.md"
_SHARED: Final = 5
"""An option that so many commands have with the same meaning is described once."""

_INTRO: Final = """# Commands and options

This page lists every command of `worldagent` with its arguments and options, as `--help` prints them. Use it to look
up one option. The [command line](cli.md) explains what the commands do and how to combine them.

```sh
worldagent --help       # the commands
worldagent ask --help   # one command
```

`tests/support/golden.py` writes this page.

## Options of many commands
"""


class Row(NamedTuple):
    """An argument or an option: its first name, all names with the value, and the meaning."""

    name: str
    shown: str
    meaning: str


def page() -> str:
    """The text of the page."""
    commands = dict(_commands())
    counted = Counter(row for command in commands.values() for row in _rows(command, "option"))
    usual = {row.name: row for row, count in reversed(counted.most_common()) if count >= _SHARED}
    parts = [_INTRO, _table("option", sorted(usual.values()))]
    for path, command in commands.items():
        rows = _rows(command, "option")
        parts += [f"## {path}\n", *_help(command), _table("argument", _rows(command, "argument"))]
        parts.append(_table("option", [row for row in rows if usual.get(row.name) != row]))
        shared = ", ".join(f"`{row.name}`" for row in sorted(rows) if usual.get(row.name) == row)
        parts.append(f"Also [options of many commands](#options-of-many-commands): {shared}\n" if shared else "")
    return "\n".join(part for part in parts if part)


def _help(command: Any) -> Iterator[str]:
    """The help as Markdown; what is indented in it is an example."""
    parts = inspect.cleandoc(command.help).split("\n\n")
    for part in parts:
        if not part.startswith("  ") and not re.fullmatch(r"\[bold\]Examples?\[/bold\]", part):
            yield f"{_plain(part)}\n"
    if examples := [part.strip() for part in parts if part.startswith("  ")]:
        yield "\n".join(["```sh", *examples, "```", ""])


def _rows(command: Any, kind: str) -> list[Row]:
    return [_row(each) for each in command.params if each.param_type_name == kind and not each.hidden]


def _row(given: Any) -> Row:
    value = "" if getattr(given, "is_flag", False) else given.metavar or given.bare_type.__name__.upper()
    if given.param_type_name == "argument":
        return Row(value, f"`{value}`", _plain(given.help or ""))
    names: list[str] = [*given.opts, *given.secondary_opts]
    first = names[0]
    names[0] = f"{first} {value}".rstrip()
    required = " Required." if given.required else ""
    return Row(first, ", ".join(f"`{name}`" for name in names), f"{_plain(given.help or '')}{required}")


def _plain(text: str) -> str:
    """A paragraph on one line, with code in place of bold."""
    return re.sub(r"\[bold\](.+?)\[/bold\]", r"`\1`", " ".join(text.split()))


def _table(title: str, rows: list[Row]) -> str:
    lines = ["| {} | {} |".format(*(cell.replace("|", "\\|") for cell in row[1:])) for row in rows]
    return "\n".join([f"| {title} | meaning |", "|---|---|", *lines, ""]) if rows else ""


# --- the wire ---------------------------------------------------------------------------------------------------------


def words() -> str:
    """Codes of errors, kinds of events with their fields, keys of settings: programs compare these."""
    found = {"errors": _codes(), "events": _kinds(), "settings": sorted(Settings.model_fields)}
    return "\n".join(line for title, each in found.items() for line in (title, *(f"  {word}" for word in each))) + "\n"


def _codes() -> list[str]:
    every = list(vars(errors).values())
    kinds = {kind for kind in every if inspect.isclass(kind) and issubclass(kind, errors.WorldAgentError)}
    return sorted({f"{kind.code}{' (retryable)' if kind.retryable else ''}" for kind in kinds})


def _kinds() -> list[str]:
    every = vars(events).values()
    models = (kind for kind in every if inspect.isclass(kind) and issubclass(kind, BaseModel))
    kinds = [kind for kind in models if "type" in kind.model_fields]
    return sorted(f"{kind.model_fields['type'].default}: {', '.join(kind.model_fields)}" for kind in kinds)


def sidecar_schemas() -> str:
    """The schemas of the sidecar's tools, one a line."""
    return _lines(sidecar.schemas())


def role_host_schemas() -> str:
    """The schemas of the role host's tools, one a line."""
    return _lines(role_host.schemas())


def _lines(schemas: Mapping[str, Any]) -> str:
    rows = (f"{json.dumps(name)}: {json.dumps(schema, sort_keys=True)}" for name, schema in sorted(schemas.items()))
    return "{\n" + ",\n".join(rows) + "\n}\n"


FILES: Final[Mapping[str, Callable[[], str]]] = {
    "names.txt": public_names,
    "command_line.txt": command_line,
    "words.txt": words,
    "sidecar.json": sidecar_schemas,
    "role_host.json": role_host_schemas,
}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    for (name, first), made in TABLES.items():
        write_rows(DOCS / name, first, made())
    drawing.write(asyncio.run(drawing.drawing()))
