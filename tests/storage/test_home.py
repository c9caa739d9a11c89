"""Where an agent keeps its files."""

from collections.abc import Callable
from typing import Any

import pytest

from worldagent.core.errors import InvalidArgument
from worldagent.storage import PostgresAddress, Storage

MAKE: Any = Storage  # for arguments of wrong types
INVALID: list[tuple[Callable[[], object], str]] = [
    (lambda: MAKE(3), r"`home` must be a pathlib\.Path or None, got int"),
    (lambda: MAKE("a\0b"), "`home` contains a NUL character"),
    (lambda: MAKE(__file__).begun(), r"`home` '.*test_home\.py' is a file"),
    (lambda: PostgresAddress("postgresql://h/d", connections=0), "`connections`"),
]


@pytest.mark.parametrize(("make", "says"), INVALID)
def test_invalid_home_or_address_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        make()
