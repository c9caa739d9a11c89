"""Mistakes that the leak suite must notice, by name: its positive control."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from support.leaks import Watch

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
