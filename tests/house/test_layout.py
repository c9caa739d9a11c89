"""The shape of the package: what imports what at run time, and how many modules a folder has."""

import re

import grimp

from support.house import ROOT, shipped_modules

# Not shipped, or programs of their own.
_BESIDE = ("tests", "examples", "benchmarks", "docs")
_MOST_AT_RUN_TIME = 3
_MOST_FOR_TYPES = 5


def circles(*, for_types: bool) -> list[list[str]]:
    """The import circles of the package, the largest first; `for_types` counts imports under `TYPE_CHECKING` too."""
    graph = grimp.build_graph("worldagent", exclude_type_checking_imports=not for_types, cache_dir=None)
    modules = {name for name in graph.modules if not name.startswith(tuple(f"worldagent.{each}" for each in _BESIDE))}
    assert len(modules) > 100
    reached = {name: graph.find_upstream_modules(name) & modules for name in modules}
    found = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in modules}
    return sorted((sorted(circle) for circle in found if len(circle) > 1), key=len, reverse=True)


def test_no_import_circle_has_more_than_three_files() -> None:
    assert [circle for circle in circles(for_types=False) if len(circle) > _MOST_AT_RUN_TIME] == []


def test_no_import_circle_of_type_checkers_has_more_than_five_files() -> None:
    assert [circle for circle in circles(for_types=True) if len(circle) > _MOST_FOR_TYPES] == []


def test_no_folder_holds_a_single_module() -> None:
    for folder in {path.parent for path in shipped_modules() if path.name == "__init__.py"} - {ROOT}:
        inside = [each for each in folder.glob("*.py") if each.name != "__init__.py"]
        inside += [each.parent for each in folder.glob("*/__init__.py")]
        assert len(inside) > 1, f"{folder.relative_to(ROOT)} has one module: make it a module"


def test_the_map_of_the_code_names_what_exists() -> None:
    table = [line for line in (ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    named = {name for line in table for name in re.findall(r"`([\w/]+(?:/|\.py))`", line)}
    assert len(named) > 15
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]
