"""What the pages say holds: examples run, links lead somewhere, tables follow from the code."""

from __future__ import annotations

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
    figure_rows,
    links,
    measure,
    pages,
    rows,
    text_of,
)
from worldagent.core.events import parse_event
from worldagent.signatures.escape import escape_markers, unescape_markers

DECISIONS = DOCS / "decisions"
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work|Users|tmp|opt|var)/|[A-Z]:\\\\")
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
    # Line numbers of a traceback are those of the page.
    source = "\n" * (example.line - 1) + example.code
    thresholds = gc.get_threshold()
    try:
        exec(compile(source, str(example.page), "exec"), {"__name__": "__main__"})
    finally:  # a page shows how to set these
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        gc.enable()
    expected_output = PRINTED.findall(example.code)
    if expected_output:
        assert capsys.readouterr().out.splitlines() == expected_output


def test_the_readme_embeds_the_agent_in_ten_lines() -> None:
    [block] = [block for block in blocks("python") if block.page.name == "README.md"]
    assert len([line for line in block.code.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link} names no heading"


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)
    assert sorted(named) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_every_page_of_the_first_rank_is_reached_from_the_index() -> None:
    reached = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    expected = [page for folder in ("start", "guides", "reference") for page in (DOCS / folder).glob("*.md")]
    assert not [
        page for page in [*expected, DECISIONS / "index.md", DOCS / "reference/api/index.md"] if page not in reached
    ]
    assert [page.name for page in DOCS.glob("*.md")] == ["index.md"]
    assert DOCS / "index.md" in {(ROOT / link).resolve() for link in links(ROOT / "README.md")}


def test_the_text_of_an_approval_is_as_the_command_line_shows_it() -> None:
    [text] = [block.code for block in blocks("text") if block.page == DOCS / "guides" / "approvals.md"]
    assert text in text_of(DOCS / "reference" / "cli.md")


def test_every_example_is_in_the_gallery() -> None:
    page = DOCS / "start" / "examples.md"
    shown = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
    examples = [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*/README.md")]
    assert examples
    assert not [example for example in examples if example not in shown]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_names_a_path_of_a_machine(page: Path) -> None:
    assert not MACHINE_PATH.findall(text_of(page))


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
    *("approvals list", "approvals approve", "approvals reject", "serve", "ps"),
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
    assert rows(DOCS / "guides" / "roles.md", "prompt") == figure_rows(list(measure()))


def decision_records() -> list[Path]:
    return sorted(page for page in DECISIONS.glob("*.md") if page.name != "index.md")


def test_decisions_are_listed_in_order_by_their_titles() -> None:
    listed = re.findall(r"^\* (\d{4}): \[(.+)\]\((.+)\)$", text_of(DECISIONS / "index.md"), re.MULTILINE)
    assert [name for _, _, name in listed] == [record.name for record in decision_records()]
    for number, title, name in listed:
        assert text_of(DECISIONS / name).startswith(f"# {number}: {title}\n"), name


def test_decisions_are_numbered_short_and_of_one_form() -> None:
    records = decision_records()
    assert [record.name[:4] for record in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    for record in records:
        lines = text_of(record).splitlines()
        assert lines[0].startswith(f"# {record.name[:4]}: "), record.name
        assert re.findall(r"^\*\*(\w+)\.\*\*", text_of(record), re.MULTILINE) == ["Context", "Decision", "Why"]
        assert len(lines) <= 15, record.name
