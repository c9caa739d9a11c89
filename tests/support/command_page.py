"""The page `docs/reference/commands.md`: every command with its help and its options, as the program has them."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import typer

from support.house import ROOT
from worldagent.hosts.cli.app import app

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
    commands = dict(_commands("worldagent", typer.main.get_command(app)))
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


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", each)


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
