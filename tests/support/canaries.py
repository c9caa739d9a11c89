"""Texts to plant as roles: random, so that no run of them stands anywhere by chance, and the same in every run.

How a model may repeat one, and what shows that it did, is here too.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Callable

from worldagent.core import ECHO_RUN

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def canary(length: int, seed: int | str = 0) -> str:
    """Return `length` characters: words of random letters, such as a role may have."""
    source = random.Random(f"{length}/{seed}")
    text = ""
    while len(text) < length:
        text += "".join(source.choices(_LETTERS, k=source.randint(4, 11))) + " "
    return text[: length - 1] + source.choice(_LETTERS)


def awkward_canary(length: int, seed: int | str = 0) -> str:
    """Return `length` characters that every encoding writes in its own way.

    They are words with accents and of several scripts; line ends, tabs, quotes and backslashes between them come far
    closer to each other than 40 characters.
    """
    source = random.Random(f"awkward/{length}/{seed}")
    text = source.choice(_LETTERS)
    while len(text) < length:
        letters = source.choice(_SCRIPTS)
        text += "".join(source.choices(letters, k=source.randint(3, 8))) + source.choice(_BETWEEN)
    return text[: length - 1] + source.choice(_LETTERS)


_SCRIPTS = (_LETTERS, _LETTERS, _LETTERS + "äöüßéàçñåøž" * 3, "жщёйюяЖЩ", "αβγλμάέώΣς", "中文不要夸奖批评", "😀🚀é")
_BETWEEN = ("\n", "\n", "\t", ' "', '" ', "\\ ", "' ", "/", ', "')

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in capitals": str.upper,
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "with soft hyphens": "\u00ad".join,
    "in JSON": lambda text: json.dumps({"rules": text}, ensure_ascii=False),
    "in JSON with ASCII escapes": json.dumps,
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text, ensure_ascii=False), ensure_ascii=False),
    "in JSON in JSON with ASCII escapes": lambda text: json.dumps(json.dumps([text])),
    "as a list": lambda text: "\n".join(f"{number}. {line}" for number, line in enumerate(words_of(text), 1)),
}
"""How a model may repeat a role."""


def words_of(text: str) -> list[str]:
    """The words of a role, each of them too short for a run."""
    return re.findall(r"\w+", text)


def repeated(text: str, seed: object = None) -> str:
    """A role as a model repeats it: in all `FORMS`, or in the one that a seed chooses."""
    chosen = FORMS if seed is None else [random.Random(f"form of {seed}").choice(list(FORMS))]
    return "\n".join(f"I am told, {form}: {FORMS[form](text)} So be it." for form in chosen)


def traces_of(text: str) -> list[str]:
    """What is looked for to find a role that was repeated in any of `FORMS`."""
    if len(text) < ECHO_RUN:
        return [text]
    return [text, *(FORMS[form](text) for form in ("in capitals", "decomposed", "with soft hyphens", "as a list"))]


# The two lengths that the leak suite plants: one that is searched as a whole, one of which any 40 characters count.
SHORT = canary(12)
LONG = canary(400)
