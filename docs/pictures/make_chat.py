"""Make `chat.svg`, the picture of a chat in the README.

It runs the real `worldagent chat` in a pseudo-terminal, with a model whose words are in this file, and draws the
screen. Run it when the chat looks different: `PYTHONPATH=.dev:tests .venv/bin/python -P docs/pictures/make_chat.py`.
"""

from __future__ import annotations

import asyncio
import html
import io
import os
import re
import sys
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from support.chat import Terminal
from support.services import Said, service

PICTURE = Path(__file__).with_name("chat.svg")
ROOT = PICTURE.parents[2]
COLUMNS, LINES = 100, 32
# What a user has set for programs must not change the picture.
FOREIGN = (
    "WORLDAGENT_",
    "OPENAI_",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "PROMPT_TOOLKIT_",
)
Lines = list[list[tuple[str, Style]]]
"""The lines of a screen, as pieces of text with their styles."""

ANSWERS = (
    Said("", (("price", {"item": "hat"}),)),
    Said("Arr, a fine hat be **20 euros**, matey! Shall I haul one aboard for ye?"),
    Said("", (("buy", {"item": "hat"}),)),
    Said("Yo ho, the hat be yours, and it sails yer way! Yer purse be 20 euros lighter."),
)


async def session() -> Lines:
    """Hold the chat, and give the lines of its last screen."""
    argv = (sys.executable, "-P", "-m", "worldagent.hosts.cli", "chat", "--app", "shop:agent", "--account", "ana")
    with TemporaryDirectory() as folder, service(*ANSWERS) as model:
        env = _environment(Path(folder), model.url("chat"))
        async with Terminal(argv, env=env, columns=COLUMNS, lines=LINES) as terminal:
            await terminal.shows("\nworkspace shop")
            await terminal.say("/role Answer like a pirate. Keep it to two sentences.")
            await terminal.say("What does a hat cost?")
            await terminal.say("Aye, buy one.", then="main answer>")
            await terminal.say("yes", prompt="main answer>", then="main>")
            return _read_screen(bytes(terminal.raw))


def _environment(folder: Path, api_base: str) -> dict[str, str]:
    settings = folder / "settings.toml"
    settings.touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in (".dev", "docs/pictures")),
        "WORLDAGENT_HOME": str(folder / "home"),
        "WORLDAGENT_SETTINGS": str(settings),
        "WORLDAGENT_API_BASE": api_base,
        "WORLDAGENT_LM": "openai/scripted",
        "WORLDAGENT_MODEL_TOOLS": "native",
        "OPENAI_API_KEY": "none",
    }


def draw(lines: Lines) -> str:
    """Give the picture of a screen, as SVG."""
    console = Console(
        width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False
    )
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
    console.print()  # the last line has no clip path, which some programs then do not draw
    picture = console.export_svg(title="worldagent chat", code_format=_FORMAT, unique_id="chat")
    picture = re.sub(r"<text [^>]*>\n</text>", "\n", picture)  # rich draws the ends of lines
    return re.sub(r"[ \n]*\n[ \n]*", "\n", picture)


def text_in(picture: str) -> str:
    """Give the text of a picture, without empty lines."""
    rows: dict[str, str] = {}
    for row, text in re.findall(r'<text class="chat-r[^>]* y="([^"]+)"[^>]*>([^<]*)<', picture):
        rows[row] = rows.get(row, "") + html.unescape(text).replace("\xa0", " ")
    return "\n".join(rows.values())


def text_on(lines: Lines) -> str:
    """Give the text of a screen, without empty lines."""
    return "\n".join("".join(text for text, _ in line) for line in lines if line)


class _Screen(pyte.Screen):
    def select_graphic_rendition(self, *attributes: int, **more: Any) -> None:
        """Take faint text for bright black, since pyte has nothing for it."""
        if not {38, 48} & set(attributes):  # after these a 2 is part of a colour
            attributes = tuple(90 if each == 2 else each for each in attributes)
        super().select_graphic_rendition(*attributes, **more)


def _read_screen(written: bytes) -> Lines:
    """Give the screen after a program wrote this, down to its last line with text."""
    screen = _Screen(COLUMNS, LINES)
    pyte.ByteStream(screen).feed(written)
    shown = "\n".join(line.rstrip() for line in screen.display).rstrip().splitlines()
    cells = [[screen.buffer[row][column] for column in range(len(line))] for row, line in enumerate(shown)]
    return [[("".join(cell.data for cell in alike), style) for style, alike in groupby(line, _style)] for line in cells]


def _style(cell: Any) -> Style:
    return Style(
        color=_color(cell.fg),
        bgcolor=_color(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _color(name: str) -> str:
    """Give rich's name of a colour of pyte, which calls yellow brown, and has six hexadecimal digits for others."""
    name = name.replace("brown", "yellow")
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else re.sub("^bright", "bright_", name)


# Rich's own format loads a font from another server.
_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


if __name__ == "__main__":
    PICTURE.write_text(draw(asyncio.run(session())), encoding="utf-8")
