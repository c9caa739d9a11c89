"""R15: the control tokens of the embedded model, read from its file and broken in every prompt."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from worldagent.core.errors import StorageInvalid
from worldagent.signatures.escape import control_tokens

pytestmark = pytest.mark.requirement("R15")


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf(tokens: list[str], types: list[int], *, version: int = 3) -> bytes:
    """A file with the metadata only; other entries stand before and between the ones that count."""
    entries = [
        string("general.name") + struct.pack("<I", 8) + string("tiny"),
        string("general.count") + struct.pack("<IQ", 10, 7),
        string("tokenizer.ggml.scores") + struct.pack("<IIQ2f", 9, 6, 2, 0.0, 1.0),
        string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, len(tokens)) + b"".join(map(string, tokens)),
        string("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 1) + string("a b"),
        string("tokenizer.ggml.token_type") + struct.pack(f"<IIQ{len(types)}i", 9, 5, len(types), *types),
    ]
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(entries)) + b"".join(entries)


@pytest.mark.parametrize("version", [2, 3])
def test_unknown_control_and_user_defined_tokens_are_read(tmp_path: Path, version: int) -> None:
    file = tmp_path / "tiny.gguf"
    tokens = ["plain", "<unk>", "<|im_start|>", "<tool>", "<|eot_id|>", "\n", "  ", "<0x0A>"]
    file.write_bytes(gguf(tokens, [1, 2, 3, 4, 1, 3, 4, 6], version=version))

    assert control_tokens(file) == {"<unk>", "<|im_start|>", "<tool>", "<|eot_id|>"}


def test_a_file_that_ends_anywhere_too_early_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    whole = gguf(["<s>", "a"], [3, 1])
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(StorageInvalid, match=r"'cut.gguf'"):
            control_tokens(file)
