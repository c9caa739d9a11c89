"""What the pages say holds: examples run, links lead somewhere, tables follow from the code."""

import gc
import re
from pathlib import Path

import pytest

from support.command_line import options_of
from support.house import ROOT
from support.pages import (
    DOCS,
    TABLES,
    Block,
    anchors,
    blocks,
    links,
    pages,
    rows,
    shared_rows,
    text_of,
)
from worldagent.core.events import parse_event
from worldagent.signatures.escape import escape_markers, unescape_markers

PRINTED = re.compile(r"# ->(?: (.*))?$", re.MULTILINE)


def examples() -> list[object]:
    """Give every Python block; one that needs the embedded model says so with `lm="local"`.

    A block with a title is a file that works with others, and the test of its page runs it. Programs of other
    frameworks are marked `py`, which a forge colours likewise.
    """
    return [
        pytest.param(block, id=str(block), marks=[pytest.mark.local] if 'lm="local"' in block.code else [])
        for block in blocks("python")
        if not block.title
    ]


@pytest.mark.parametrize("example", examples())
def test_an_example_runs_and_prints_what_it_says(
    example: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLDAGENT_HOME", str(tmp_path / "home"))
    (tmp_path / "settings.toml").touch()
    monkeypatch.setenv("WORLDAGENT_SETTINGS", str(tmp_path / "settings.toml"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # a page makes folders that a reader can look at afterwards
    # Line numbers of a traceback are those of the page.
    source = "\n" * (example.line - 1) + example.code
    thresholds = gc.get_threshold()
    try:
        exec(compile(source, str(example.page), "exec"), {"__name__": "__main__"})
    finally:  # a page shows how to set these
        gc.set_threshold(*thresholds)
        if "gc.freeze" in example.code:
            gc.unfreeze()
        gc.enable()
    expected_output = PRINTED.findall(example.code)
    if expected_output:
        assert capsys.readouterr().out.splitlines() == expected_output


def test_every_link_of_every_page_leads_somewhere() -> None:
    for page in pages():
        for link in links(page):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), f"{link} of {page} leads nowhere"
            assert not anchor or anchor in anchors(target), f"{link} of {page} names no heading"


def test_every_page_is_in_the_navigation_once() -> None:
    """Decision records are there as their index lists them."""
    named = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)
    assert sorted(named) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if not page.name[0].isdigit()
    )


@pytest.mark.parametrize(("page", "first"), TABLES, ids=lambda part: part.rpartition("/")[2])
def test_a_table_that_follows_from_the_code_is_as_the_code_has_it(page: str, first: str) -> None:
    made = TABLES[page, first]()
    assert rows(DOCS / page, first) == made, "run PYTHONPATH=.dev:tests .venv/bin/python -P tests/support/golden.py"


def test_every_event_shown_as_json_is_one() -> None:
    shown = [line for block in blocks("json") for line in block.code.splitlines() if '"seq"' in line]
    assert shown
    for line in shown:
        event = parse_event(line)
        assert event is not None
        assert event.model_dump_json() == line


_COMMANDS = (
    *("ask", "task", "resume", "threads list", "roles put"),
    *("approvals list", "approvals approve", "approvals reject", "serve", "ps", "doctor"),
)


def test_the_page_of_the_command_line_names_every_option() -> None:
    text = text_of(DOCS / "reference" / "cli.md")
    named = {option for command in _COMMANDS for option in options_of(*command.split())}
    assert not [option for option in sorted(named) if f"`{option}" not in text]


@pytest.mark.requirement("R15")
def test_the_examples_of_the_escape_are_right_and_can_be_undone() -> None:
    pairs = [re.findall(r"`` (.+?) ``", row) for row in rows(DOCS / "guides" / "roles.md", "typed")]
    assert pairs
    for typed, sent in pairs:
        assert escape_markers(typed) == sent
        assert unescape_markers(sent) == typed


@pytest.mark.requirement("R17")
def test_the_bytes_that_prompts_share_are_those_of_the_page() -> None:
    assert rows(DOCS / "guides" / "roles.md", "prompt") == list(shared_rows())
