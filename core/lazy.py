"""Names of a package that load their module on first use (PEP 562)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import resolve_name


def lazy(package: str, homes: Mapping[str, str], *, moved: bool = False) -> Callable[[str], object]:
    """Return the `__getattr__` of a package.

    Args:
        package: The package's name.
        homes: The names that each of its modules has, separated by blanks.
        moved: Whether these are names of before, so that each warns and says where it is now.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if moved:
            warnings.warn(f"{name} is in {resolve_name(modules[name], package)} now", DeprecationWarning, stacklevel=2)
        return getattr(import_module(modules[name], package), name)

    return load
