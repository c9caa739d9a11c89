"""Texts to plant as roles: random, so that no run of them stands anywhere by chance, and the same in every run."""

from __future__ import annotations

import random

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def canary(length: int, seed: int | str = 0) -> str:
    """Return `length` characters: words of random letters, such as a role may have."""
    source = random.Random(f"{length}/{seed}")
    text = ""
    while len(text) < length:
        text += "".join(source.choices(_LETTERS, k=source.randint(4, 11))) + " "
    return text[: length - 1] + source.choice(_LETTERS)


def awkward_canary(length: int, seed: int = 0) -> str:
    """Return `length` characters with quotes, line ends, backslashes, umlauts and emoji, which encodings escape."""
    source = random.Random(f"awkward/{length}/{seed}")
    text = "".join(
        source.choice([*_LETTERS, " ", '"', "'", "\\", "\n", "\t", "ä", "ß", "中", "😀"]) for _ in range(length - 2)
    )
    return f"{source.choice(_LETTERS)}{text}{source.choice(_LETTERS)}"


# The two lengths that the leak suite plants: one that is searched as a whole, one of which any 40 characters count.
SHORT = canary(12)
LONG = canary(400)
