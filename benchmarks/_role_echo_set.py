"""The labelled set in role_echo.toml: roles in three languages, with answers that use them or disclose them.

The texts were written for this set: to each role two answers that do their job, and one that hands the role out.
`dressed` hands a role out by rule, in every dress that a guard has to see through.
"""

from __future__ import annotations

import html
import json
import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_FILLERS: Final = {"en": ("well", "basically", "indeed"), "de": ("also", "eigentlich", "nun"), "zh": ("嗯",)}
_LABELS: Final = {"en": "Rule {}: ", "de": "Regel {}: ", "zh": "规则{}："}
_HAN: Final = re.compile("[\u3400-\u9fff]")
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s*|\n+")
_WORDS_BETWEEN_FILLERS: Final = 5
_WORDS_BETWEEN_TYPOS: Final = 7
_SEED: Final = 20261129


@dataclass(frozen=True, slots=True)
class Answered:
    """A message and its answer.

    Attributes:
        message: The user's message.
        answer: The model's answer.
        dress: How the answer hands out the role; empty if it does not.
    """

    message: str
    answer: str
    dress: str = ""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A role and its answers.

    Attributes:
        id: Its name in the set.
        kind: What it is for, such as `support`.
        language: `en`, `de` or `zh`.
        text: Its content.
        uses: Answers that do their job, and take from the role what belongs into them.
        disclosures: Answers that hand out most of the role.
        unseen: Whether its writer had not read the rule, and its reader did not read it before the end.
    """

    id: str
    kind: str
    language: str
    text: str
    uses: Sequence[Answered]
    disclosures: Sequence[Answered]
    unseen: bool


def labelled_roles() -> list[Labelled]:
    """The set, in the order of its file."""
    found: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("role_echo.toml").read_text("utf-8"))
    return [
        Labelled(
            id=each["id"],
            kind=each["kind"],
            language=each["language"],
            text=each["text"].strip(),
            uses=[Answered(**one) for one in each["use"]],
            disclosures=[Answered(**one) for one in each["disclosure"]],
            unseen=each["id"].endswith("-c"),
        )
        for each in found["role"]
    ]


def dressed(role: Labelled) -> list[Answered]:
    """Answers that give the complete role, one for each dress."""
    source = random.Random(f"{_SEED}{role.id}")
    return [Answered("", dress(role.text, role.language, source), name) for name, dress in _DRESSES.items()]


Dress = Callable[[str, str, random.Random], str]


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text."""
    return [each.strip() for each in _SENTENCE.split(text) if each.strip()]


def _each_word(text: str, change: Callable[[str], str]) -> str:
    return "\n".join(" ".join(map(change, line.split())) for line in text.split("\n"))


def _between(separator: str) -> Dress:
    def dress(text: str, language: str, source: random.Random) -> str:
        if language == "zh":
            return separator.join(re.findall(r"[\u3400-\u9fff]{1,2}|[^\u3400-\u9fff]+", text))
        return "\n".join(separator.join(line.split()) for line in text.split("\n"))

    return dress


def _lines(write: Callable[[int, str], str], before: str = "", after: str = "") -> Dress:
    def dress(text: str, language: str, source: random.Random) -> str:
        made = [write(number, each) for number, each in enumerate(sentences(text), 1)]
        return before + "\n".join(made) + after

    return dress


def _labels(text: str, language: str, source: random.Random) -> str:
    return "\n".join(_LABELS[language].format(number) + each for number, each in enumerate(sentences(text), 1))


def _typo(text: str, language: str, source: random.Random) -> str:
    count = 0

    def change(word: str) -> str:
        nonlocal count
        count += 1
        if count % _WORDS_BETWEEN_TYPOS:
            return word
        if language == "zh":
            return "错"
        at = source.randrange(1, max(2, len(word) - 1))
        return word[:at] + word[at + 1 :]

    if language == "zh":
        return _HAN.sub(lambda found: change(found[0]), text)
    return _each_word(text, lambda word: change(word) if len(word) > 3 else word)


def _fillers(text: str, language: str, source: random.Random) -> str:
    count = 0

    def change(word: str) -> str:
        nonlocal count
        count += 1
        gap = "" if language == "zh" else " "
        return word if count % _WORDS_BETWEEN_FILLERS else f"{word}{gap}{source.choice(_FILLERS[language])}"

    if language == "zh":  # a word has about two characters
        return re.sub("[\u3400-\u9fff]{2}", lambda found: change(found[0]), text)
    return _each_word(text, change)


def _order(text: str, language: str, source: random.Random) -> str:
    made = sentences(text)
    source.shuffle(made)
    return " ".join(made)


def _wide(text: str, language: str, source: random.Random) -> str:
    return "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in text)


def _json(text: str, language: str, source: random.Random) -> str:
    return json.dumps({"a": json.dumps({"b": json.dumps({"c": text})})})


def _entities(text: str, language: str, source: random.Random) -> str:
    return html.escape(text).replace(" ", "&nbsp;").replace("ü", "&uuml;").replace("ä", "&auml;")


_DRESSES: Final[Mapping[str, Dress]] = {
    "plain": lambda text, language, source: text,
    "bullets": _lines(lambda number, each: f"* {each}"),
    "numbers": _lines(lambda number, each: f"{number}. {each}"),
    "html_list": _lines(lambda number, each: f"<li>{each}</li>", "<ul>", "</ul>"),
    "entities": _entities,
    "labels": _labels,
    "table": _lines(lambda number, each: f"| {number} | {each.replace('|', '/')} |", "| # | Rule |\n|---|---|\n"),
    "quotes": _lines(lambda number, each: f"“{each}”"),
    "case": lambda text, language, source: text.upper(),
    "unicode": _wide,
    "bold": lambda text, language, source: _each_word(text, lambda word: f"**{word}**"),
    "tags": lambda text, language, source: _each_word(text, lambda word: f"<b>{word}</b>"),
    "hyphens": _between("-"),
    "dots": _between("."),
    "json": _json,
    "typo": _typo,
    "fillers": _fillers,
    "order": _order,
}
