"""Reads the control tokens of a GGUF model file, and nothing else.

This is not a GGUF library: tensors and other metadata are skipped. `escape` breaks these tokens, and `engines` runs the
model. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from ..core.errors import ModelNotConfigured, StorageInvalid

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
