"""HTML as Markdown, by a process that is killed if it takes too long, because every parser is slow on some page.

`html_program` is the program. It has no environment, and ends with this process.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ...core.errors import MissingExtra, ToolFailed
from ..program import Program

_PROGRAM: Final = Path(__file__).with_name("html_program.py")
_PACKAGE: Final = "html_to_markdown"
_KEPT: Final = ("LD_LIBRARY_PATH", "SYSTEMROOT")
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A page as text.

    Attributes:
        title: Its title; empty if it has none.
        text: Its text, as Markdown.
        cut: Whether there is more of it.
    """

    title: str
    text: str
    cut: bool


def check_installed() -> None:
    """Check that HTML can be read.

    Raises:
        MissingExtra: The package that reads it is not installed.
    """
    if find_spec(_PACKAGE) is None:
        raise MissingExtra(
            f"pages are read with the package {_PACKAGE!r}, which is not installed",
            remedy="install it: pip install 'worldagent[web]'",
        )


class Reader:
    """Turns pages into text, one after another: `async with Reader() as reader: ...`.

    Args:
        seconds: How long one page can take.
    """

    def __init__(self, *, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._process: Program | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def read(self, page: bytes, *, charset: str | None, url: str, limit: int, cut: bool = False) -> Text:
        """Turn a page into text.

        Args:
            page: The bytes of the page.
            charset: Its encoding, if that is known.
            url: Its address, for its links; can be empty.
            limit: How many characters are kept.
            cut: Whether the page is incomplete.

        Raises:
            ToolFailed: It cannot be read, or takes longer than `seconds`.
        """
        problem = "is too large or too complex to read"
        try:
            async with asyncio.timeout(self._seconds):
                return await self._asked(page, charset=charset, url=url, limit=limit, cut=cut)
        except TimeoutError:
            problem = f"takes longer than {self._seconds:g} seconds to read"
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass  # the process has ended
        except asyncio.CancelledError:
            await self._end()
            raise
        await self._end()
        raise ToolFailed(f"the page {problem}", remedy="use another page")

    async def _asked(self, page: bytes, *, charset: str | None, url: str, limit: int, cut: bool) -> Text:
        process = await self._started()
        asked = {"size": len(page), "charset": charset, "url": url, "limit": limit, "cut": cut}
        process.stdin.write(json.dumps(asked).encode() + b"\n" + page)
        reply = json.loads(await process.stdout.readline())
        text = await process.stdout.readexactly(reply["size"])
        return Text(title=reply["title"], text=text.decode(), cut=reply["cut"])

    async def _started(self) -> Program:
        if self._process is None:
            check_installed()
            spec = find_spec(_PACKAGE)
            assert spec is not None
            assert spec.origin is not None
            env = {name: os.environ[name] for name in _KEPT if name in os.environ}
            self._process = await Program.start(_PROGRAM, str(Path(spec.origin).parent.parent), env=env)
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end(0)


__all__ = ["Reader", "Text", "check_installed"]
