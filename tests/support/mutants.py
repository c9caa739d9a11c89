"""Mutants: one check of the package is switched off, so that a test shows that nothing else does its work."""

import __future__

import importlib
import inspect
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Mutant:
    """A part of the source of one function, which is replaced by another one while a test runs.

    Attributes:
        place: The module below `worldagent` and the function, such as `harness.handles:Held.label_at`.
        old: The part, which stands there exactly once; it is the check.
        new: What stands there in the mutant.
    """

    place: str
    old: str
    new: str

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Use the mutant until the end of the test, in every module that has imported the function."""
        name, _, path = self.place.partition(":")
        module: Any = importlib.import_module(f"worldagent.{name}")
        *outer, last = path.split(".")
        owner = module
        for each in outer:
            owner = getattr(owner, each)
        before = vars(owner)[last]
        made = self._made(module, before, last)
        monkeypatch.setattr(owner, last, made)
        if owner is module:
            for other in [each for key, each in sys.modules.items() if key.startswith("worldagent.")]:
                if other is not module and vars(other).get(last) is before:
                    monkeypatch.setattr(other, last, made)

    def _made(self, module: Any, before: Any, name: str) -> Any:
        bare: Any = before.fget if isinstance(before, property) else getattr(before, "__func__", before)
        source = textwrap.dedent(inspect.getsource(bare))
        assert source.count(self.old) == 1, f"{self.place} has {self.old!r} {source.count(self.old)} times"
        found: dict[str, Any] = {}
        changed = source.replace(self.old, self.new)
        code = compile(changed, f"<mutant of {self.place}>", "exec", flags=__future__.annotations.compiler_flag)
        exec(code, vars(module), found)
        return found[name]
