"""Loads a policy from a YAML file, or a JSON file, which is also YAML. `policy` defines the keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...core.errors import PolicyInvalid
from ...core.files import read_regular
from ..yaml import LONGEST, YamlDocument, read_yaml
from .policy import Policy, Rule

K = TypeVar("K")

VERSION = 1

_KEYS = ("version", *Policy.model_fields)


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a YAML or JSON file.

    Args:
        path: The file. Its keys are those of `Policy`, the keys of its rules are those of `Rule`, and `version: 1` is
            allowed.

    Raises:
        PolicyInvalid: The file cannot be read; the text names the file, the line and the problem.
        MissingExtra: The extra `yaml` is not installed.
    """
    file, data = _read(path)
    return policy_in(read_yaml(data, name=str(file), error=PolicyInvalid))


def policy_in(document: YamlDocument, *path: str) -> Policy:
    """Read the policy in a document.

    Args:
        document: The document.
        path: The keys that lead to the policy; none if the document is the policy.

    Raises:
        PolicyInvalid: The policy cannot be read; the text names the file, the line and the problem.
    """
    said = document.data
    for key in path:
        said = said[key]
    if not isinstance(said, Mapping):
        raise PolicyInvalid(
            f"{document.where(*path)}: a policy must be a mapping", remedy=f"its keys are: {', '.join(_KEYS)}"
        )
    unknown = [key for key in said if key not in _KEYS]
    if unknown:
        raise PolicyInvalid(
            f"{document.where(*path, unknown[0])} has the unknown key {unknown[0]!r}",
            remedy=f"the keys are: {', '.join(_KEYS)}",
        )
    if said.get("version", VERSION) != VERSION or isinstance(said.get("version"), bool):
        raise PolicyInvalid(
            f"{document.where(*path, 'version')} has version {said['version']!r}, which is not supported",
            remedy=f"write version: {VERSION}",
        )
    listed = said.get("rules", [])
    if not isinstance(listed, list):
        raise PolicyInvalid(
            f"{document.where(*path, 'rules')}: `rules` must be a list", remedy="begin each rule with '- decision:'"
        )
    rules = [_rule(document, (*path, "rules", place), each) for place, each in enumerate(listed)]
    for place, rule in enumerate(rules):
        _with_place(document.where(*path, "rules", place), partial(rule.check_against, rules[:place]))
    others = {key: value for key, value in said.items() if key not in ("version", "rules")}
    return _with_place(document.where(*path, *list(others)[:1]), partial(Policy, **others, rules=tuple(rules)))


def _read(path: object) -> tuple[Path, bytes]:
    """Read the file, or enough of it to know that it is too large. A pipe or a device is not opened: it could block."""
    problem, file = "", Path()
    data: bytes | None = None
    try:
        file = Path(os.fspath(path))  # type: ignore[call-overload]  # a caller can ignore the type hint
        data = read_regular(file, LONGEST + 1)
        if data is None:
            problem = "it is a directory" if file.is_dir() else "it is not a regular file"
    except OSError as failure:
        problem = failure.strerror or type(failure).__name__
    except (TypeError, ValueError):
        problem = "it is not a path"
    if data is None:
        named = str(file) if isinstance(path, str | os.PathLike) else f"of type {type(path).__name__}"
        raise PolicyInvalid(f"the policy {named!r} cannot be read: {problem}", remedy="pass the path of a file")
    if len(data) > LONGEST:
        raise PolicyInvalid(
            f"the policy {str(file)!r} has more than {LONGEST} bytes", remedy=f"keep it to {LONGEST} bytes"
        )
    return file, data


def _rule(document: YamlDocument, path: tuple[str | int, ...], said: Any) -> Rule:
    where = document.where(*path)
    if not isinstance(said, Mapping):
        raise PolicyInvalid(
            f"{where}: a rule must be a mapping", remedy="write keys and values, such as 'decision: ask'"
        )
    unknown = [key for key in said if key not in Rule.model_fields]
    if unknown:
        raise PolicyInvalid(
            f"{document.where(*path, unknown[0])} has the unknown key {unknown[0]!r}",
            remedy=f"the keys of a rule are: {', '.join(Rule.model_fields)}",
        )
    return _with_place(where, partial(Rule, **said))


def _with_place(where: str, make: Callable[[], K]) -> K:
    """Make an object, or raise its `PolicyInvalid` with the place in the file."""
    try:
        return make()
    except PolicyInvalid as error:
        problem, remedy = error.problem, error.remedy
    raise PolicyInvalid(f"{where}: {problem}", remedy=remedy)


__all__ = ["load_policy", "policy_in"]
