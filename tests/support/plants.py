"""Mistakes that the leak suite must notice, by name: its positive control."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from support.leaks import Watch, watch

Plant = Callable[[Watch, str], Awaitable[None]]
"""Makes the mistake on what is watched, with this text of a role."""


class Plants(dict[str, tuple[Plant, str]]):
    """Each mistake, and a part of the place where it must be found."""

    def __call__(self, name: str, place: str) -> Callable[[Plant], Plant]:
        """Register the mistake that is decorated."""

        def register(plant: Plant) -> Plant:
            self[name] = (plant, place)
            return plant

        return register

    async def assert_found(self, name: str, home: Path, text: str) -> None:
        """Make the mistake with this text; where it must be found it is, and before it was nowhere."""
        plant, place = self[name]
        with watch(home) as seen:
            assert seen.leaks(text) == []
            await plant(seen, text)
            found = seen.leaks(text)
        assert [finding for finding in found if place in finding], found
