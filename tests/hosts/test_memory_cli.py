"""`worldagent memory add`, `list`, `search`, `show`, `edit`, `forget`, `export` and `import`."""

import json
from pathlib import Path

import pytest

from support.chat import Start, piped
from support.command_line import COMMAND, Run, as_json, home, refusal, run
from support.openai_stub import OpenAIStub

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("M4")

NUTS = "Ana is allergic to nuts."


async def test_an_entry_is_added_found_changed_and_forgotten(run: Run, home: Path) -> None:
    assert (await run("memory", "list")).stdout == "there are no entries\n"
    more = ("--classification", "secret", "--domain", "health", "--confidence", "0.5", "--expires", "2999-01-01T00:00Z")
    given = (NUTS, "--account", "ana", "--tag", "food", "--key", "k", *more)
    added = (await as_json(run, "memory", "add", *given))["entry"]
    again = (await as_json(run, "memory", "add", NUTS, "--account", "ana", "--key", "k"))["entry"]
    assert again == added
    assert (added["tags"], added["account"], added["version"]) == (["food"], "ana", 1)
    assert (added["classification"], added["domain"], added["confidence"]) == ("secret", "health", 0.5)
    assert (await as_json(run, "memory", "list"))["entries"] == []
    assert (await as_json(run, "memory", "list", "--account", "ana", "--tag", "food"))["entries"] == [added]
    [found] = (await as_json(run, "memory", "search", "Any nuts?", "--account", "ana"))["entries"]
    assert (found["id"], found["score"] > 0) == (added["id"], True)
    assert f"text: {NUTS}" in (await run("memory", "show", added["id"], "--account", "ana")).stdout
    changed = await as_json(
        run, "memory", "edit", added["id"], "--text", "No nuts.", "--account", "ana", "--of-version", "1"
    )
    assert (changed["entry"]["text"], changed["entry"]["version"]) == ("No nuts.", 2)
    assert changed["entry"]["expires"] == added["expires"] == "2999-01-01T00:00:00Z"
    kept = await as_json(run, "memory", "edit", added["id"], "--no-expires", "--account", "ana")
    assert kept["entry"]["expires"] is None
    assert (await as_json(run, "memory", "forget", added["id"], "--account", "ana", "--yes")) == {"forgotten": 1}
    assert NUTS.encode() not in b"".join(file.read_bytes() for file in home.iterdir() if file.is_file())


async def test_an_export_is_imported_once_and_everything_can_be_forgotten(run: Run, home: Path, tmp_path: Path) -> None:
    odd = "Ana likes tea.\u2028And\x85milk.\f"
    for text in (NUTS, odd):
        await as_json(run, "memory", "add", text, "--account", "ana")
    await as_json(run, "memory", "add", "The harbour opens at six.")
    file = str(tmp_path / "ana.jsonl")
    assert (await as_json(run, "memory", "export", "--account", "ana", "-o", file))["exported"] == 2
    assert (await as_json(run, "memory", "forget", "--everything", "--account", "ana", "--yes")) == {"forgotten": 2}
    for _ in range(2):
        assert (await as_json(run, "memory", "import", file)) == {"imported": 2}
    texts = {entry["text"] for entry in (await as_json(run, "memory", "list", "--account", "ana"))["entries"]}
    assert texts == {NUTS, odd, "The harbour opens at six."}
    await as_json(run, "memory", "import", file, "--account", "bob")
    assert len((await as_json(run, "memory", "list", "--account", "bob"))["entries"]) == 3


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("add", "x", "--kind", "rule"), "`kind` must be one of"),
        (("add", "x", "--expires", "tomorrow"), "--expires is not a time with a zone"),
        (("show", "mem_0"), "there is no memory entry 'mem_0'"),
        (("edit", "mem_0"), "nothing is changed"),
        (("edit", "mem_0", "--no-expires", "--expires", "2999-01-01T00:00Z"), "contradict each other"),
        (("forget",), "it is not clear what to forget"),
        (("forget", "mem_0"), "must be confirmed"),
        (("import", "missing.jsonl"), "cannot be read"),
        (("distil",), "it is not clear what to distil"),
        (("distil", "t1", "--quiet", "0"), "it is not clear what to distil"),
        (("distil", "t1", "--role", "A pirate."), "threads are distilled without a role"),
    ],
)
async def test_what_cannot_be_done(run: Run, home: Path, words: tuple[str, ...], problem: str) -> None:
    refused = await refusal(run, "memory", *words)
    assert problem in refused["message"]


async def test_a_file_with_a_wrong_line_writes_nothing(run: Run, home: Path, tmp_path: Path) -> None:
    other = ("[]", "nan", f'{{"text": {"[" * 100_000}')
    cases = {'{"text": 3}': "the fields of entry 2"} | dict.fromkeys(other, "line 2 is not a JSON object")
    for wrong, problem in cases.items():
        file = tmp_path / "wrong.jsonl"
        file.write_text(f'{{"text": "fine"}}\n{wrong}\n')
        assert problem in (await refusal(run, "memory", "import", str(file)))["message"]
    assert (await as_json(run, "memory", "list"))["entries"] == []


@pytest.mark.requirement("M2")
async def test_a_chat_shows_which_entries_a_message_recalled(run: Run, start: Start, stub: OpenAIStub) -> None:
    entry = (await as_json(run, "memory", "add", NUTS, "--account", "ana"))["entry"]
    async with start("--account", "ana", WORLDAGENT_MEMORY="true") as terminal:
        await terminal.say("Hello")
        assert "memory:" not in terminal.text
        await terminal.say("Any nuts?")
        assert f"memory: {entry['id']}" in terminal.lines
    assert NUTS in stub.asked()


@pytest.mark.requirement("M2")
async def test_a_program_that_reads_a_chat_gets_the_entries_as_json_or_where_it_asks(
    run: Run, environment: dict[str, str]
) -> None:
    entry = (await as_json(run, "memory", "add", NUTS, "--account", "ana"))["entry"]
    given = environment | {"WORLDAGENT_MEMORY": "true", "WORLDAGENT_LM": "openai/answer"}
    words = ("ask", "Any nuts?", "--account", "ana")
    for more, expected in (((), ""), (("-v",), f"memory: {entry['id']}")):
        code, out, told = await piped(given, b"", *words, *more, argv=COMMAND)
        assert (code, out, expected in told, "memory:" in told) == (0, "Paris.\n", True, bool(more))
    _, out, _ = await piped(given, b"", *words, "--json", argv=COMMAND)
    assert json.loads(out)["recalled"] == [entry["id"]]
    _, out, _ = await piped(given, b"", *words, "--events", argv=COMMAND)
    [shown] = [each for each in map(json.loads, out.splitlines()) if each["type"] == "memory_recalled"]
    assert shown["entries"] == [entry["id"]]
