"""The labelled set in memory_set.toml: 2,000 entries in English, German and Chinese, and 420 questions with one answer.

Every person has one entry for each of ten matters. A question names the person and asks for one matter in other words
than its entry, as people do. The other entries of the person, and those of all others on this matter, are distractors.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_SEED: Final = 20261127


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the place of the entry that answers it."""

    language: str
    text: str
    answer: int


def labelled_set() -> tuple[list[str], list[Question]]:
    """The texts of the entries, and the questions. Values and questions are drawn with a fixed seed."""
    source = random.Random(_SEED)
    languages: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("memory_set.toml").read_text("utf-8"))
    texts: list[str] = []
    questions: list[Question] = []
    for language, given in languages.items():
        made: list[Question] = []
        for who in given["people"]:
            for matter in given["matters"]:
                made.append(Question(language, matter["question"].format(who=who), len(texts)))
                texts.append(matter["entry"].format(who=who, value=source.choice(matter["values"])))
        questions += source.sample(made, given["asked"])
    return texts, questions
