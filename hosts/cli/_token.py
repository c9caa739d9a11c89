"""Where the token of a role host comes from: a file or the environment, never an argument."""

from __future__ import annotations

import os
from pathlib import Path

from ...core.errors import InvalidArgument
from ._sources import text

VARIABLE = "WORLDAGENT_ROLE_HOST_TOKEN"


def host_token(file: Path | None) -> str | None:
    """The token in `file`, else in the environment; None where there is none.

    Raises:
        InvalidArgument: The file cannot be read, or there is nothing in it.
    """
    if file is None:
        return os.environ.get(VARIABLE) or None
    token = text("--token-file", f"@{file}").strip()
    if not token:
        raise InvalidArgument(f"the token file {str(file)!r} is empty", remedy="write the token into it")
    return token


__all__ = ["VARIABLE", "host_token"]
