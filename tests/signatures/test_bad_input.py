"""Signatures, files of models and closed models that are refused: the error has its type and names the thing."""

import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.lm15 import Message, Response, ToolCallPart, Usage
from dspy.utils.exceptions import AdapterParseError

from support.agents import Ask, refused
from worldagent.core.errors import FunctionInvalid, ModelNotConfigured, StorageInvalid, WorldAgentError
from worldagent.signatures.adapter import RoleAdapter
from worldagent.signatures.calling import MAX_CHARACTERS, MAX_SECTIONS
from worldagent.signatures.engines.classification import AnswerTooLong
from worldagent.signatures.engines.connect import abilities_of
from worldagent.signatures.escape import control_tokens
from worldagent.signatures.signature import check_signature
from worldagent.signatures.streaming import AnswerStream

NO_CLASS: Any = Ask.fields
BAD: list[tuple[Callable[[], object], type[WorldAgentError], str]] = [
    (lambda: check_signature(NO_CLASS), FunctionInvalid, "a Signature must be a subclass of dspy.Signature"),
    (lambda: check_signature(Ask.delete("message")), FunctionInvalid, "must have input and output fields"),
    (lambda: abilities_of(["nosuch/model"]), ModelNotConfigured, "'nosuch/model'"),
    (lambda: control_tokens(Path("/no/such.gguf")), ModelNotConfigured, "'such.gguf' cannot be read"),
]


@pytest.mark.parametrize(("make", "error", "says"), BAD)
def test_bad_signature_or_model_is_refused(make: Callable[[], object], error: type[WorldAgentError], says: str) -> None:
    assert says in refused(make, error).problem


def gguf(key: bytes, kind: int, value: bytes, magic: bytes = b"GGUF", version: int = 3) -> bytes:
    """A file with one entry of metadata."""
    return magic + struct.pack(f"<IQQQ{len(key)}sI", version, 0, 1, len(key), key, kind) + value


@pytest.mark.parametrize(
    "data",
    [
        gguf(b"a", 4, bytes(4), magic=b"GGML"),
        gguf(b"a", 4, bytes(4), version=1),
        gguf(b"a", 99, bytes(4)),
        gguf(b"tokenizer.ggml.tokens", 4, bytes(16)),
        gguf(b"tokenizer.ggml.token_type", 9, struct.pack("<IQ", 4, 0)),
    ],
    ids=["magic", "version", "unknown kind", "tokens are not a list", "types are not integers"],
)
def test_invalid_model_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    error = refused(lambda: control_tokens(tmp_path / "m.gguf"), StorageInvalid)
    assert "'m.gguf' must be a complete GGUF file of version 2 or 3" in error.problem
    (tmp_path / "m.gguf").write_bytes(gguf(b"a", 4, bytes(4)))
    assert control_tokens(tmp_path / "m.gguf") == frozenset()


def test_too_many_native_calls_are_refused() -> None:
    signature: Any = dspy.make_signature("request, offered_tools -> calls: list[dict], result: str")
    adapter = RoleAdapter().for_call({"offered_tools": [1]}, native=True)
    calls = [ToolCallPart(id=str(number), name="f", input={}) for number in range(MAX_SECTIONS + 1)]
    for fits, parts in ((True, calls[1:]), (False, calls)):
        message = Message(role="assistant", parts=tuple(parts))
        response = Response(id=None, model="m", message=message, finish_reason="tool_call", usage=Usage())
        with nullcontext() if fits else pytest.raises(AdapterParseError):
            assert len(adapter.read(signature, response)["calls"]) == MAX_SECTIONS


LONG = "x" * (MAX_CHARACTERS + 1)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": LONG},
        {"reasoning_content": LONG},
        {"tool_calls": [SimpleNamespace(function=SimpleNamespace(arguments=LONG))]},
    ],
    ids=lambda delta: next(iter(delta)),
)
async def test_too_long_answer_is_refused(delta: dict[str, Any]) -> None:
    stream = AnswerStream(None, None, lambda text: None, lambda text: None)
    with pytest.raises(AnswerTooLong):
        await stream.send(SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(**delta))]))
