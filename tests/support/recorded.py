"""Answers of model services that other projects recorded; `tests/signatures/recorded/SOURCES.md` says which and how."""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from support.house import ROOT

_NAMES: Final = {"chat": "chat", "responses": "Responses", "anthropic": "Messages", "gemini": "Gemini"}
_KINDS: Final = ("streamed", "tools", "thinking", "structured", "images", "errors")


@cache
def recorded_answers() -> Mapping[str, list[dict[str, Any]]]:
    """Give the answers by the name of their project."""
    files = sorted((ROOT / "tests" / "signatures" / "recorded").glob("*.jsonl.gz"))
    return {
        path.name.partition(".")[0]: [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for path in files
    }


def recorded_rows() -> list[str]:
    """Give the rows of the table of what was tried."""
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for answers in recorded_answers().values():
        for answer in answers:
            counts[answer["service"], answer["form"]].update(["all", *answer["kinds"]])
    return [
        f"| {service} | {_NAMES[form]} | {found['all']} | {' | '.join(str(found[kind] or '-') for kind in _KINDS)} |"
        for (service, form), found in sorted(counts.items())
    ]
