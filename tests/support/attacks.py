"""An attack that one check stops: it succeeds without a guard, and with one in which the check is switched off."""

from typing import Protocol

import pytest

from support.mutants import Mutant


class Attack(Protocol):
    """Runs an attack."""

    async def __call__(self, place: str, *, guard: bool) -> bool:
        """Run it, and return whether it succeeds.

        Args:
            place: The name of a folder of its own.
            guard: Whether models are guarded.
        """
        ...


async def shows_its_check(attack: Attack, check: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show that an attack is stopped by the guard, and by one check of it.

    Args:
        attack: The attack.
        check: The check, as the mutant in which it is switched off.
        monkeypatch: Undoes that after the test.
    """
    assert await attack("off", guard=False), "it does not succeed where nobody is guarded"
    assert not await attack("on", guard=True), "it succeeds although the models are guarded"
    check.apply(monkeypatch)
    assert await attack("mutant", guard=True), f"it is stopped without {check}"
