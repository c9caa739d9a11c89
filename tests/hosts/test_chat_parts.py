"""What `worldagent chat` is made of, where a terminal shows too little of it: commands, and what may be kept."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from worldagent.hosts.cli.chat.commands import COMMANDS, may_be_kept
from worldagent.hosts.cli.chat.prompt import ENTRIES, LENGTH, FileHistory
from worldagent.hosts.service.pauses import printable


def test_what_turns_the_order_of_characters_around_reaches_no_terminal_and_separators_are_line_feeds() -> None:
    for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x1B, 0x9B):
        assert printable(f"one{chr(code)}two") == "onetwo"
    assert printable("one\u2028two\u2029three\u200f\u200e\tfour\n") == "one\ntwo\nthree\u200f\u200e\tfour\n"


@given(st.text(), st.sampled_from(["/role ", "/rol ", "/Role ", " /role\n", "/rolf", "/roles a b", "/thread a ", "/"]))
def test_nothing_that_sets_a_role_or_may_have_been_meant_to_is_kept(text: str, begin: str) -> None:
    name, *given = (begin + text).split()
    if name.startswith("//") or (name in COMMANDS.keys() - {"/role"} and len(given) < 2):
        return
    assert not may_be_kept(begin + text)


def opened(file: Path) -> FileHistory:
    history = FileHistory(may_be_kept, lambda: "main")
    history.open(file, "shop/{}".format)
    return history


async def test_the_history_of_input_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "history"
    history = opened(file)
    for number in range(2 * ENTRIES + 5):
        history.append_string(f"message {number}")
    history.append_string("x" * (LENGTH + 1))
    assert len(file.read_text(encoding="utf-8").splitlines()) == ENTRIES + 5
    strings = opened(file).get_strings()
    assert (len(strings), strings[-1]) == (ENTRIES, f"message {2 * ENTRIES + 4}")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [found.name for found in tmp_path.iterdir()] == ["history"]
