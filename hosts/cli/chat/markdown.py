"""Answers as Markdown, drawn while they are written. A model's text cannot control the terminal or get lost.

Only complete blocks are printed permanently. A `rich.live.Live` that shows `AnswerStream.growing` redraws the last one
as it grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from ...pauses import printable

# Rich would drop HTML and the addresses of images, so both are switched off and stay as they were written. References
# are off too, since their addresses can come after the block that needs them is drawn.
_PARSER: Final = (
    MarkdownIt("commonmark", {"html": False, "maxNesting": 100})
    .enable(["table", "strikethrough"])
    .disable(["html_block", "html_inline", "image", "reference", "autolink"])
)
_INDENT: Final = 4  # columns of a level, at most
_END: Final = 4_000  # characters of a growing block that are drawn
_FENCES: Final = ("```", "~~~")


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text  # to the left, without a frame


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")


class _Markdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "heading_open": _Heading, "fence": _Code, "code_block": _Code}

    def __init__(self, source: str) -> None:
        # No hyperlinks: the address of a link is shown next to its text, which can name another one.
        super().__init__("", code_theme="ansi_dark", justify="default", hyperlinks=False)
        self.parsed = _PARSER.parse(source)
        self.depth = max((token.level for token in self.parsed), default=0)
        _clean(self.parsed)


def _clean(tokens: Iterable[Token]) -> None:
    """Drop characters that could control a terminal, also those from entities such as `&#x202e;`; keep line breaks."""
    for token in tokens:
        token.content, token.info = printable(token.content), printable(token.info)
        if "href" in token.attrs:
            token.attrs["href"] = printable(str(token.attrs["href"]))
        if token.type == "softbreak":
            token.type = "hardbreak"
        _clean(token.children or ())


class Block:
    """Part of an answer, as lines without blanks at their ends.

    Args:
        source: Its Markdown.
        gap: Whether to put an empty line above it.
        last: How many lines to show, from the end; None is all.
    """

    def __init__(self, source: str, *, gap: bool = False, last: int | None = None) -> None:
        self._source, self._gap, self._last = source, gap, last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        markdown = _Markdown(self._source)
        # Each level is indented, and rich drops text that has no column left.
        deep = markdown.depth * _INDENT > options.max_width * 3 // 4
        drawn: RenderableType = Text(self._source) if deep else markdown
        lines = [_stripped(line) for line in console.render_lines(drawn, options.update(height=None), pad=False)]
        while lines and not lines[0]:
            del lines[0]
        while lines and not lines[-1]:
            del lines[-1]
        if self._gap:
            lines.insert(0, [])
        for line in lines if self._last is None else lines[-self._last :]:
            yield from line
            yield Segment.line()


def _stripped(line: list[Segment]) -> list[Segment]:
    """A line without blanks at its end, which a terminal would wrap when it is made narrower."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style)] if line else []


class AnswerStream:
    """Draws one answer after another on a console.

    Args:
        console: The console. If it cannot be drawn on, the text is printed as it comes.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._plain = console.is_dumb_terminal
        self._source = ""  # text that is not printed permanently
        self._gap = False  # whether a block of the answer is printed
        self._next = 0  # length of the source at which to look for complete blocks

    def feed(self, text: str) -> None:
        """Draw new text of the answer."""
        text = printable(text)
        if self._plain:
            self._console.print(Text(text), end="", soft_wrap=True)
            self._source = (self._source + text)[-1:]
            return
        self._source += text
        # The cost of looking grows with the source, so a longer source is looked at less often.
        if "\n" in text and len(self._source) >= self._next:
            complete, _, half = self._source.rpartition("\n")  # half a line can be taken for another kind of block
            *done, last = _blocks(complete) or [complete]
            self._source = f"{last}\n{half}"
            self._print(done)
            self._next = len(self._source) * 9 // 8

    def end(self) -> None:
        """Print the rest of the answer. The next text begins a new one."""
        rest, self._source = self._source, ""
        if not self._plain:
            self._print(_blocks(rest))
        elif rest not in ("", "\n"):
            self._console.print()
        self._gap, self._next = False, 0

    def growing(self, lines: int) -> Block | None:
        """The end of the block that is being written, at most `lines` lines; None if there is no such block.

        It is drawn many times, so only as much of the source is parsed as is needed.
        """
        source = self._source
        if self._plain or not source.strip():
            return None
        first, *others = source.split("\n")
        if len(others) > lines:
            source = "\n".join([*([first] if first.lstrip().startswith(_FENCES) else []), *others[-lines - 1 :]])
        return Block(source[-_END:], gap=self._gap, last=lines)

    def _print(self, blocks: Iterable[str]) -> None:
        for block in blocks:
            self._console.print(Block(block, gap=self._gap))
            self._gap = True


def _blocks(source: str) -> list[str]:
    """The blocks of an answer. All but the last stay the same, whatever is written below."""
    starts = [token.map[0] for token in _PARSER.parse(source) if token.level == 0 and token.map is not None]
    lines = source.split("\n")
    return ["\n".join(lines[start:end]) for start, end in pairwise([*starts, len(lines)])]


def code_blocks(source: str) -> list[str]:
    """The code in the blocks of an answer."""
    return [token.content for token in _PARSER.parse(source) if token.type in ("fence", "code_block")]


__all__ = ["AnswerStream", "Block", "code_blocks"]
