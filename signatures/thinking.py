"""Reasoning that a model writes into its text, in tags such as `<think>`.

Servers that do not separate it leave it at the beginning of the text. Some leave only its closing tag there, since the
prompt has opened it. It is reasoning like that which services give separately: it is not an answer and stays out of the
history (H3).
"""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
_TAGS: Final = {**{f"<{name}>": f"</{name}>" for name in _NAMES}, "[THINK]": "[/THINK]", "◁think▷": "◁/think▷"}
_TAGS["<|channel|>analysis<|message|>"] = "<|end|><|start|>assistant<|channel|>final<|message|>"
# A closing tag that has a line to itself, or ends one.
_CLOSING: Final = re.compile("(?:" + "|".join(map(re.escape, _TAGS.values())) + r")[ \t]*(?:\r?\n|\Z)")
_BEGINNINGS: Final = frozenset(tag[0] for tag in _TAGS)
_FENCE: Final = "```"


def answer_in(text: str) -> str:
    """The text of an answer without the reasoning at its beginning."""
    if "/" not in text and text.lstrip()[:1] not in _BEGINNINGS:  # the usual case
        return text
    split = Thoughts()
    answer = split.feed(text)[0] + split.close()[0]
    closing = None if split.opened else _only_closing(answer)
    return answer if closing is None else answer[closing.end() :].lstrip()


def unopened_end(text: str) -> str:
    """The tag that ends reasoning at the beginning of a text that no tag has opened; empty if there is none."""
    if any(text.lstrip().startswith(tag) for tag in _TAGS):
        return ""
    closing = _only_closing(text)
    return "" if closing is None else closing[0].rstrip()


def _only_closing(text: str) -> re.Match[str] | None:
    closing = _CLOSING.search(text)
    return None if closing is None or text.count(_FENCE, 0, closing.start()) % 2 else closing


class Thoughts:
    """Divides a text that comes in pieces into answer and reasoning. It delays no more than could become a tag.

    A text with only a closing tag is an answer here, unless it is expected: when that tag comes, the answer before it
    has been passed on. The complete text is read by `answer_in`.

    Args:
        expected: The tag that ends reasoning in texts that do not open it, as the model's last answer had it; empty if
            it had none. A text that does not have it is reasoning here.

    Attributes:
        opened: Whether the text began with reasoning.
    """

    def __init__(self, expected: str = "") -> None:
        self.opened, self._expected = False, expected
        self._closing = ""  # the tag that ends the reasoning
        self._rest: str | None = ""  # what could become a tag; None when the answer has begun

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next piece, and return the next pieces of the answer and the reasoning."""
        if self._rest is None:
            return text, ""
        self._rest += text
        if not self.opened:
            begin = self._rest.lstrip()
            tag = next((tag for tag in _TAGS if begin.startswith(tag)), None)
            if tag is None:
                if not begin:
                    blank, self._rest = self._rest, ""
                    return blank, ""
                if any(each.startswith(begin) for each in _TAGS):
                    return "", ""
                if not self._expected:
                    return self._answer(self._rest), ""
            self.opened, self._closing = True, self._expected if tag is None else _TAGS[tag]
            self._rest = begin if tag is None else begin[len(tag) :].lstrip()
        thought, tag, answer = self._rest.partition(self._closing)
        if tag:
            return self._answer(answer), thought
        held = next(
            (size for size in range(len(self._closing) - 1, 0, -1) if thought.endswith(self._closing[:size])), 0
        )
        self._rest = thought[len(thought) - held :]
        return "", thought[: len(thought) - held]

    def close(self) -> tuple[str, str]:
        """The text has ended: return what was delayed."""
        rest, self._rest = self._rest or "", None
        return ("", rest) if self._closing and rest else (rest, "")

    def _answer(self, text: str) -> str:
        """The beginning of the answer; blanks between it and the reasoning belong to neither."""
        self._rest, self._closing = None, ""
        return text.lstrip() if self.opened else text
