"""A profile with every key of 004: one of ours, and the source text's own where that is beside the checkout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"

OURS = """\
name: searcher
description: looks things up

system_prompt: |
  <role>
  You look things up and say where you found them.
  </role>

# what it can call
tools:
  - web_search
  - web_fetch
  - read_file
  - glob_files
  - grep_content

agents_md: false

memory:
  short_term_size: 50
  compression_threshold: 30000
  compression_ratio: 0.3
  strategy: sliding_window
  long_term_memory: false

skills:
  enabled: false

verification:
  enabled: false
"""

EXAMPLES = [
    pytest.param("ours", id="ours"),
    pytest.param(
        "004", id="004", marks=pytest.mark.skipif(not _SEEDS.is_dir(), reason="the source texts are not beside this")
    ),
]


def example(which: str) -> str:
    """The text of one of `EXAMPLES`."""
    if which == "ours":
        return OURS
    [source] = _SEEDS.glob("004*")
    found = re.search(r"```yaml\n(name: searcher\n.*?)```", source.read_text(), re.DOTALL)
    assert found is not None, "004 has an example"
    return found[1]


__all__ = ["EXAMPLES", "OURS", "example"]
