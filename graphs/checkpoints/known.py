"""The content that checkpoints can hold: plain values and LangGraph's interrupts, in the channels of the graphs here.

Bytes that would make or call anything else are refused before that happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import ormsgpack
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_KW_ARGS, JsonPlusSerializer
from langgraph.types import Interrupt
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, TypeAdapter

from ...core.events import TurnKind


class KnownTypes(JsonPlusSerializer):
    """Writes as LangGraph does, but reads only plain values and interrupts, whatever LangGraph's own settings allow."""

    def __init__(self) -> None:
        super().__init__(__unpack_ext_hook__=_interrupt)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] not in ("null", "msgpack"):
            raise ValueError("this kind of value is not written by any graph of the agent")
        return super().loads_typed(data)


def _interrupt(code: int, data: bytes) -> Interrupt[Any]:
    """Read an interrupt, which marks a run that stopped before its end.

    Nothing else but plain values is in a checkpoint.
    """
    found = ormsgpack.unpackb(data) if code == EXT_CONSTRUCTOR_KW_ARGS else None
    match found:
        case ["langgraph.types", "Interrupt", {"value": str(value), "id": str(key)}]:
            return Interrupt(value=value, id=key)
        case _:
            pass
    raise ValueError("this type of value is not written by any graph of the agent")


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class _Work(_Strict):
    to: str
    shape: str
    params: dict[str, Any]


class TurnChannels(_Strict):
    """A turn's state as it is stored. A new channel needs a default, because older threads do not have it."""

    turn: str
    kind: TurnKind
    asked: str
    head: str
    round: int
    step: int = 0
    work: list[_Work]
    rejections: int = 0
    fault: str | None
    status: Literal["open", "done"]
    role: str | None


class WorkerChannels(_Strict):
    """A worker's state as it is stored."""

    worker: str
    round: int = 0
    status: Literal["think", "act", "waiting", "done"] = "think"
    request: str = ""  # only in older versions
    text: str = ""


_Version = Annotated[str, Field(pattern=r"^\d+\.")]  # the form in which the saver numbers them


class _Checkpoint(_Strict):
    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, _Version]
    versions_seen: dict[str, dict[str, _Version]]
    updated_channels: list[str] | None = None


class _Metadata(_Strict):
    source: str
    step: int
    parents: dict[str, str]


_INPUT, _GOTO = "__start__", "branch:to:"
_WRITES: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(field.rebuild_annotation(), config=ConfigDict(strict=True, hide_input_in_errors=True))
    for channels in (TurnChannels, WorkerChannels)
    for name, field in channels.model_fields.items()
} | {"__error__": TypeAdapter(str), "__interrupt__": TypeAdapter(list[InstanceOf[Interrupt[Any]]])}


def check(found: CheckpointTuple) -> None:
    """Check that a checkpoint is one that the graphs here write.

    Raises:
        ValidationError, ValueError: It is not.
    """
    _Metadata.model_validate(found.metadata)
    values = _Checkpoint.model_validate(found.checkpoint).channel_values
    state = values.get(_INPUT, values)
    (WorkerChannels if "worker" in state else TurnChannels).model_validate(state)
    for _, channel, value in found.pending_writes or ():
        if channel in _WRITES:
            _WRITES[channel].validate_python(value)
        elif value is not None or not channel.startswith(_GOTO):
            raise ValueError("this write is not made by any graph of the agent")
