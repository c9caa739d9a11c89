"""Decision records have one form, and their index lists each with its status."""

import re
from collections.abc import Iterator

from support.house import ROOT

FOLDER = ROOT / "docs" / "decisions"
_LINKS = r"\[\d{4}\]\([\w.-]+\)(?:, \[\d{4}\]\([\w.-]+\))*"
_STATUS = re.compile(rf"(In force|Amended by {_LINKS}|Replaced by {_LINKS})[.:,]")
_MOST_LINES = 15
# A status, and what the record at its other end says.
_ENDS = {"Amended by": "Amends", "Replaced by": "Replaces"}


def records() -> dict[str, str]:
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("[0-9]*.md"))}


def status_of(text: str) -> str:
    return text.rpartition("**Status.** ")[2]


def named(words: str, text: str) -> set[str]:
    """Give the files that `text` names after `words`."""
    return {file for part in re.findall(rf"{words} ({_LINKS})", text) for file in re.findall(r"\]\(([^)]+)\)", part)}


def test_each_record_says_context_decision_why_and_status() -> None:
    for name, text in records().items():
        head, *parts = text.strip().split("\n\n")
        assert re.fullmatch(rf"# {name[:4]}: [^\n]+", head), name
        labels = [label for part in parts for label in re.findall(r"^\*\*(\w+)\.\*\* ", part)]
        assert labels == ["Context", "Decision", "Why", "Status"], name
        assert parts[-1].startswith("**Status.** "), name
        assert _STATUS.match(status_of(text)), f"{name}: In force, Amended by [NNNN](FILE), or Replaced by [NNNN](FILE)"
        assert len([line for part in parts[:-1] for line in part.splitlines()]) <= _MOST_LINES, name


def test_what_amends_or_replaces_a_record_says_so_too() -> None:
    texts = records()
    for passive, active in _ENDS.items():
        said = {(name, other) for name, text in texts.items() for other in named(passive, status_of(text))}
        back = {(other, name) for name, text in texts.items() for other in named(active, status_of(text))}
        assert said == back, passive


def _rows() -> Iterator[str]:
    for name, text in records().items():
        found = _STATUS.match(status_of(text))
        status = re.sub(r"\[(\d+)\]\([^)]+\)", r"\1", found[1]) if found else ""
        title = text.partition("\n")[0].partition(": ")[2]
        yield f"| [{name[:4]}]({name}) | {title} | {status[:1].lower()}{status[1:]} |"


def test_the_index_lists_each_record_once_with_its_status() -> None:
    lines = (FOLDER / "index.md").read_text(encoding="utf-8").splitlines()
    assert sorted(line for line in lines if line.startswith("| [")) == sorted(_rows())
