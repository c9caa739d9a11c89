r"""Reversible escapes: no input text can pass for a field header or a control token (R15).

One rule applies to everything here. Ignoring backslashes, wherever a dangerous sequence starts, one backslash is added
after its first character: `[[ ## role ## ]]` becomes `[\[ ## role ## ]]`, and `[\[ ## role ## ]]` becomes
`[\\[ ## role ## ]]`. Removing one at the same places undoes it. This is exact: a text consists of its letters without
the backslashes, and the number of backslashes after each letter. The places depend only on the letters, and escaping
changes only the numbers. So nothing is lost, and two different texts never become equal. For the same reason escapes
can be combined in any order.

The adapters decide which fields are escaped. The control tokens of the embedded model are read from its GGUF file, of
which nothing else is read.
"""

from __future__ import annotations

import json
import mmap
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..core.errors import ModelNotConfigured, StorageInvalid

_SLASH = "\\"
_LEFT_AS_IT_IS = frozenset("\t\n \xa0\u1680\u202f\u205f\u3000") | frozenset(map(chr, range(0x2000, 0x200B)))
_SLASHES = re.compile(r"\\+")

# Characters that a reader can overlook between the parts of a header: white space except line feeds, control
# characters, and invisible characters (Unicode's default ignorable ones, the blank fillers).
_UNSEEN = (
    "\\x00-\\x09\\x0b-\\x20\\x7f-\\xa0\\xad\\u034f\\u061c\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f"
    "\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u2800\\u3000\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb"
    "\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
_INVISIBLE = re.compile(f"[{_UNSEEN}]")
# A gap can contain one line feed, and a blank line ends it. So values that are joined with a blank line between them,
# as every adapter does, form no new marker.
_GAP = f"[{_UNSEEN}]*(?:\\n[{_UNSEEN}]*)?"
_BRACKET = "[\\[\\uff3b\\ufe47]"
_HASH = "[#\\uff03\\ufe5f]"
# dspy's own header is `[[ ## name ## ]]`. dspy's adapters expand the second alternative into message parts.
_MARKER = re.compile(f"{_BRACKET}(?={_GAP}{_BRACKET}{_GAP}{_HASH})|<(?=<CUSTOM-TYPE-(?:START|END)-IDENTIFIER>>)")


def escape_markers(text: str) -> str:
    """Escape a text for a field of a prompt (R15).

    The start of a header is two opening square brackets and a hash sign, in ASCII or in a compatibility form (full
    width, small, vertical). White space, control characters, invisible characters and a single line feed can be between
    them. The markers that dspy uses for custom types in a message (`<<CUSTOM-TYPE-...>>`) count too. Other forms of a
    header, such as `## role ##` without brackets or with look-alike letters, are not detected.

    Args:
        text: Any text. One that is already escaped is escaped once more.

    Returns:
        The text with one more backslash in each such place, or the same object if there is none.
    """
    return _shift(text, _MARKER, by=1)


def unescape_markers(text: str) -> str:
    """Undo `escape_markers`: for every text, `unescape_markers(escape_markers(text)) == text`.

    Args:
        text: An escaped text. A marker without a backslash, which an escaped text never has, is left unchanged.

    Returns:
        The text before it was escaped.
    """
    return _shift(text, _MARKER, by=-1)


def escape_description(text: str) -> str:
    r"""Escape the description of a tool, which can come from an untrusted party, for instructions (R15).

    It is escaped like a result, by `escape_markers`. Invisible characters and characters that change how others look,
    such as ESC and U+202E, are written as in JSON (`\u202e`), because a text that only the model sees could steer it
    unnoticed. Spaces and line feeds are unchanged.

    Args:
        text: The description, or JSON that contains it.
    """
    return escape_markers(text if text.isascii() and text.isprintable() else _INVISIBLE.sub(_shown, text))


def escape_descriptions(value: Any) -> Any:
    """Apply `escape_description` to every text in a JSON value, also to names of properties."""
    if isinstance(value, str):
        return escape_description(value)
    if isinstance(value, Mapping):
        return {escape_description(str(name)): escape_descriptions(each) for name, each in value.items()}
    return [escape_descriptions(each) for each in value] if isinstance(value, list | tuple) else value


def escape_control(text: str, tokens: Iterable[str]) -> str:
    """Break every control token of a model, such as `<|im_end|>`, so that its tokeniser reads plain characters (R15).

    Args:
        text: Any text. One that is already escaped is escaped once more.
        tokens: The texts of the control tokens, as `control_tokens` returns them. A `frozenset` is the
            fastest. Tokens of one character and tokens with a backslash cannot be broken this way and are skipped.

    Returns:
        The text with one more backslash after the first character of each token, or the same object.
    """
    pattern = _any_of(frozenset(tokens))
    return text if pattern is None else _shift(text, pattern, by=1)


def unescape_control(text: str, tokens: Iterable[str]) -> str:
    """Undo `escape_control` with the same tokens.

    Args:
        text: An escaped text.
        tokens: The tokens that it was escaped with.

    Returns:
        The text before it was escaped.
    """
    pattern = _any_of(frozenset(tokens))
    return text if pattern is None else _shift(text, pattern, by=-1)


def _shown(match: re.Match[str]) -> str:
    letter = match[0]
    if letter in _LEFT_AS_IT_IS:
        return letter
    return f"\\u{ord(letter):04x}" if letter < "\U00010000" else json.dumps(letter)[1:-1]


def _shift(text: str, pattern: re.Pattern[str], *, by: int) -> str:
    """Change the number of backslashes after each letter at which `pattern` matches the letters."""
    slashes = _SLASHES.finditer(text)
    run, before = next(slashes, None), 0  # the next backslashes, and how many there are before them
    pieces: list[str] = []
    kept = 0
    for match in pattern.finditer(text.replace(_SLASH, "")):
        while run is not None and run.start() - before <= match.start():
            before += len(run[0])
            run = next(slashes, None)
        behind = match.start() + before + 1  # the place in `text` behind the letter
        if by > 0 or text.startswith(_SLASH, behind):
            pieces.append(text[kept:behind])
            kept = behind + (by < 0)
            pieces.append(_SLASH * (by > 0))
    return "".join((*pieces, text[kept:])) if pieces else text


@lru_cache(maxsize=8)
def _any_of(tokens: frozenset[str]) -> re.Pattern[str] | None:
    """A pattern that matches the first letter of any token, so that overlapping tokens are all found."""
    tails: defaultdict[str, list[str]] = defaultdict(list)
    for token in sorted(tokens):
        if len(token) > 1 and _SLASH not in token:
            tails[token[0]].append(re.escape(token[1:]))
    heads = [f"{re.escape(head)}(?={'|'.join(tail)})" for head, tail in tails.items()]
    return re.compile("|".join(heads)) if heads else None


# --- the control tokens of a model file -------------------------------------------------------------------------------

_TOKENS = b"tokenizer.ggml.tokens"
_TOKEN_TYPES = b"tokenizer.ggml.token_type"
_STRING, _ARRAY = 8, 9
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_INT32 = 5
# llama.cpp looks for the texts of unknown, control and user-defined tokens in every prompt.
_SPECIAL_TYPES = frozenset({2, 3, 4})


class _Broken(Exception):
    """The bytes violate the format. This exception never leaves the module."""


def control_tokens(path: Path) -> frozenset[str]:
    """Read the texts that the model's tokeniser always converts to special tokens (R15).

    These are the tokens of type unknown, control and user-defined. Tokens of the form `<|...|>` count whatever their
    type, because llama.cpp makes some of them control tokens by their text. Tokens of one character or only of white
    space are left out, because they control nothing.

    Args:
        path: The GGUF file.

    Returns:
        The texts; empty if the file has no tokeniser.

    Raises:
        ModelNotConfigured: The file does not exist or cannot be read.
        StorageInvalid: The file is not a GGUF file of version 2 or 3, or it is truncated.
    """
    unreadable: str | None = None
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).special_tokens()
    except OSError as error:
        unreadable = type(error).__name__
    except (_Broken, ValueError):  # ValueError: an empty file cannot be mapped
        pass
    if unreadable is not None:
        raise ModelNotConfigured(
            f"the model file {path.name!r} cannot be read ({unreadable})",
            remedy="check that the file exists and is readable",
        )
    raise StorageInvalid(
        f"the model file {path.name!r} must be a complete GGUF file of version 2 or 3", remedy="download it again"
    )


class _Reader:
    """A cursor over the bytes of one file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def special_tokens(self) -> frozenset[str]:
        """Read the metadata up to the two required arrays."""
        texts: list[bytes] | None = None
        types: tuple[int, ...] | None = None
        for _ in range(self._header()):
            key, kind = self._string(), self._number("<I")
            if key == _TOKENS:
                texts = self._string_array(kind)
            elif key == _TOKEN_TYPES:
                types = self._int_array(kind)
            else:
                self._skip(kind)
            if texts is not None and types is not None:
                break
        return frozenset(_special(texts or [], types or ()))

    def _header(self) -> int:
        """Check magic and version, and return the number of metadata entries."""
        if self._take(4) != b"GGUF" or self._number("<I") not in (2, 3):
            raise _Broken
        self._number("<Q")  # the number of tensors
        return self._number("<Q")

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise _Broken
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, form: str) -> int:
        (number,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(number)

    def _string(self) -> bytes:
        return self._take(self._number("<Q"))

    def _string_array(self, kind: int) -> list[bytes]:
        count = self._array_of(kind, _STRING)
        return [self._string() for _ in range(count)]

    def _int_array(self, kind: int) -> tuple[int, ...]:
        count = self._array_of(kind, _INT32)
        return struct.unpack(f"<{count}i", self._take(4 * count))

    def _array_of(self, kind: int, wanted: int) -> int:
        if kind != _ARRAY or self._number("<I") != wanted:
            raise _Broken
        return self._number("<Q")

    def _skip(self, kind: int) -> None:
        """Skip one value. The format allows arrays of arrays, but no writer makes them."""
        if kind == _STRING:
            self._string()
        elif kind == _ARRAY:
            element, count = self._number("<I"), self._number("<Q")
            if element == _STRING:
                for _ in range(count):
                    self._string()
            else:
                self._take(_width(element) * count)
        else:
            self._take(_width(kind))


def _width(kind: int) -> int:
    if kind not in _WIDTHS:
        raise _Broken
    return _WIDTHS[kind]


def _special(texts: list[bytes], types: tuple[int, ...]) -> Iterator[str]:
    for index, text in enumerate(texts):
        typed = index < len(types) and types[index] in _SPECIAL_TYPES
        if typed or (text.startswith(b"<|") and text.endswith(b"|>")):
            decoded = text.decode("utf-8", errors="replace")
            if len(decoded.strip()) > 1:
                yield decoded
