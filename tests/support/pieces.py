"""Small images and files to attach, and what a home holds of them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n" + b"a small picture"
OTHER_PNG = b"\x89PNG\r\n\x1a\n" + b"another picture"
PDF = b"%PDF-1.7\na small paper"
ADDRESS = "https://pictures.example/lake.jpg"


def data_uri(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def pieces(home: Path) -> dict[str, bytes]:
    """Every file of the store, by its name, hidden ones as well."""
    found = [path for path in (home / "attachments").rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in found}
