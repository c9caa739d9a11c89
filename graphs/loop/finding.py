"""Tool search: with many tools, a model is offered a function that finds them, and what it found (T11).

What was found is read from the steps of the turn, so a resumed turn offers the same tools.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import BaseModel

from ...core.errors import ToolFailed
from ...harness import Function, tool
from ...harness.function import READ_ONLY
from ...memory.entries.words import question_words, words_of
from ...signatures.calling import FIND_TOOLS

MAX_FOUND: Final = 10
"""The limit of tools that one search finds."""

_SHOWN: Final = 120  # characters of a description that a search shows: the tool itself is offered then
_SERVERS: Final = 40  # groups of tools that the function's description names
_NAME_WEIGHT, _TEXT_WEIGHT, _PARAM_WEIGHT = 3.0, 2.0, 0.25
_ENDINGS: Final = ("ings", "ing", "ed", "ies", "es", "s", "en", "e")
_SHORTEST: Final = 3  # characters that remain of a word
_K1, _B = 1.2, 0.5  # of BM25
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class FoundTool(BaseModel):
    """A tool that was found.

    Attributes:
        name: Its name, as the model calls it.
        description: The beginning of its description.
    """

    name: str
    description: str


async def find_tools(query: str) -> list[FoundTool]:
    """Find tools. You can call the tools that it returns from your next step on.

    Args:
        query: What the tool does, in a few English words, such as "create calendar event".
    """
    raise ToolFailed(f"{FIND_TOOLS!r} runs only where it is offered", remedy="call it by itself, not through a tool")


FINDING: Final = tool(find_tools, risk=READ_ONLY, offered=False)
"""The function as it is declared. The one that is offered to a model searches the tools of that model."""


class ToolIndex:
    """The words of tools, for search.

    Args:
        tools: The tools.
    """

    def __init__(self, tools: Iterable[Function]) -> None:
        self._words = {each.name: _words(each) for each in tools}
        self._lengths = {name: sum(words.values()) for name, words in self._words.items()}
        self._having: Counter[str] = Counter(word for words in self._words.values() for word in words)
        self._average = sum(self._lengths.values()) / max(1, len(self._lengths))

    def find(self, query: str, most: int = MAX_FOUND) -> list[str]:
        """The names of the tools that fit best, the best first (BM25); equal ones by name.

        Args:
            query: Some words.
            most: How many at most.
        """
        wanted = {_stem_of(word) for word in question_words(query)}
        scores = {name: self._score(name, wanted) for name in self._words}
        return sorted((name for name, score in scores.items() if score), key=lambda name: (-scores[name], name))[:most]

    def _score(self, name: str, wanted: set[str]) -> float:
        words, score = self._words[name], 0.0
        length = _K1 * (1 - _B + _B * self._lengths[name] / self._average)
        for word in words.keys() & wanted:
            rare = math.log(1 + (len(self._words) - self._having[word] + 0.5) / (self._having[word] + 0.5))
            score += rare * words[word] * (_K1 + 1) / (words[word] + length)
        return round(score, 9)  # the order in which a set is added up must not decide


def _words(function: Function) -> dict[str, float]:
    found: dict[str, float] = {}
    properties = function.input_schema.get("properties", {})
    params = " ".join(f"{name} {each.get('description', '')}" for name, each in properties.items())
    for text, weight in (
        (function.name, _NAME_WEIGHT),
        (f"{function.title} {function.description}", _TEXT_WEIGHT),
        (params, _PARAM_WEIGHT),
    ):
        spaced = _HUMP.sub(" ", text)
        # Few tools have an "a" in their text, so a query that has one would find these first.
        telling = set(question_words(spaced)) if weight == _TEXT_WEIGHT else None
        for word in words_of(spaced):
            if telling is None or word in telling:
                found[_stem_of(word)] = found.get(_stem_of(word), 0.0) + weight
    return found


def _stem_of(word: str) -> str:
    """A word without its ending: the same for `event` and `events`, not always a word."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """When tools are searched, and which.

    Attributes:
        above: With more tools than this, a model is offered a search; None never does.
        has_source: Whether a function comes from a source, such as an MCP server. Others stay offered as long as they
            alone are not more than `above`.
    """

    above: int | None = None
    has_source: Callable[[str], bool] = lambda name: True

    def divided(self, functions: Sequence[Function]) -> tuple[Sequence[Function], Sequence[Function]]:
        """The functions that are always offered, and those that are searched.

        Args:
            functions: All functions.
        """
        if self.above is None or len(functions) <= self.above or any(each.name == FIND_TOOLS for each in functions):
            return functions, ()
        own = [each for each in functions if not self.has_source(each.name)]
        if len(own) > self.above:
            return (), functions
        return own, [each for each in functions if self.has_source(each.name)]


def finder_of(functions: Sequence[Function], names: Mapping[str, str]) -> Function:
    """The function that finds these tools.

    Args:
        functions: The tools that are searched.
        names: Their names as the model calls them, by their own.
    """
    index, known = ToolIndex(functions), {each.name: each for each in functions}

    async def find(query: str) -> list[FoundTool]:
        return [
            FoundTool(name=names[name], description=known[name].description[:_SHOWN].strip())
            for name in index.find(query)
        ]

    about = f"{FINDING.description} There are {len(functions)} more tools, of: {', '.join(_groups(known))}."
    return replace(FINDING, body=find, description=about)


def _groups(names: Iterable[str]) -> list[str]:
    """The beginnings that names of tools have in common, such as those of MCP servers."""
    counts = Counter(re.split(r"[._-]", name, maxsplit=1)[0] for name in names)
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:_SERVERS])
