"""A policy from a file that people write: YAML, or JSON, which is YAML too. What its keys mean is `_policy`'s."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ...core.errors import PolicyInvalid
from ..yaml import YamlDocument, read_yaml
from ._policy import Policy, Rule

K = TypeVar("K", Policy, Rule)

VERSION = 1

_KEYS = ("version", "rules", "default", "times", "seconds")


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a YAML or JSON file.

    Args:
        path: The file. Its keys are those of `Policy`, those of its rules are those of `Rule`; `version: 1` may stand
            before them.

    Raises:
        PolicyInvalid: It cannot be read; the text names file, line and what is wrong.
        MissingExtra: The extra `yaml` is not installed.
    """
    file = Path(path)
    problem, data = "", b""
    try:
        data = file.read_bytes()
    except OSError as failure:
        problem = failure.strerror or type(failure).__name__
    if problem:
        raise PolicyInvalid(f"the policy {str(file)!r} cannot be read: {problem}", remedy="give the path of a file")
    document = read_yaml(data, name=str(file), error=PolicyInvalid)
    said = document.data
    if not isinstance(said, Mapping):
        raise PolicyInvalid(f"{document.where()} is no policy", remedy=f"its keys are: {', '.join(_KEYS)}")
    unknown = [key for key in said if key not in _KEYS]
    if unknown:
        raise PolicyInvalid(
            f"{document.where(unknown[0])} has the key {unknown[0]!r}", remedy=f"the keys are: {', '.join(_KEYS)}"
        )
    if said.get("version", VERSION) != VERSION or isinstance(said.get("version"), bool):
        raise PolicyInvalid(
            f"{document.where('version')} is of version {said['version']!r}", remedy=f"write version: {VERSION}"
        )
    listed = said.get("rules", [])
    if not isinstance(listed, list):
        raise PolicyInvalid(f"{document.where('rules')}: the rules are no list", remedy="begin each with '- decision:'")
    rules = tuple(_rule(document, place, each) for place, each in enumerate(listed))
    others = {key: value for key, value in said.items() if key not in ("version", "rules")}
    return _at(document.where(*list(others)[:1]), Policy, {**others, "rules": rules})


def _rule(document: YamlDocument, place: int, said: Any) -> Rule:
    where = document.where("rules", place)
    if not isinstance(said, Mapping):
        raise PolicyInvalid(f"{where} is no rule", remedy="write keys and values, such as 'decision: ask'")
    unknown = [key for key in said if key not in Rule.model_fields]
    if unknown:
        raise PolicyInvalid(
            f"{document.where('rules', place, unknown[0])} has the key {unknown[0]!r}",
            remedy=f"the keys of a rule are: {', '.join(Rule.model_fields)}",
        )
    return _at(where, Rule, said)


def _at(where: str, kind: type[K], said: Mapping[str, Any]) -> K:
    """Make it, or say where it went wrong."""
    try:
        return kind(**said)
    except PolicyInvalid as error:
        problem, remedy = error.problem, error.remedy
    raise PolicyInvalid(f"{where}: {problem}", remedy=remedy)


__all__ = ["load_policy"]
