"""Where an agent keeps its files."""

from __future__ import annotations

import pytest

from worldagent.core.errors import InvalidArgument
from worldagent.storage import Storage


def test_invalid_home_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"`home` must be a pathlib\.Path or None, got int"):
        Storage(3)  # type: ignore[arg-type]  # what a caller without a type checker may do
