"""`worldagent trace`: out of the home alone, or a file of traces (H5)."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from support.command_line import Run, home, run
from support.traced import KEEPER
from traces.test_turns import SHOP, look, pay, search
from worldagent.harness import tool
from worldagent.harness.trace import Trace, read_trace
from worldagent.testing import ScriptedLM

__all__ = ["home", "run"]  # fixtures

pytestmark = pytest.mark.requirement("H5")

NOVEL = ("--workspace", "novel")
NASTY = "<script>alert('x')</script>\x1b[31m"


def shop(home: Path, **more: Any) -> Any:
    return scripted_agent(home, answering(), tools=[look, pay, search], shapes=[SHOP], **more)


async def test_traces_are_listed_newest_first_and_by_thread(home: Path, run: Run) -> None:
    empty = await run("trace", "list", *NOVEL)
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "has no trace" in empty.stderr
    async with shop(home) as agent:
        talk = await agent.thread("talk").converse("Hello")
        hats = await agent.thread("hats").task("shop", {"what": "hat"})
    listed = await run("trace", "list", *NOVEL)
    assert (listed.exit_code, listed.stderr) == (0, "")
    head, first, second = listed.stdout.splitlines()
    assert head.split() == ["TURN", "THREAD", "STATUS", "BEGAN", "TOKENS"]
    assert first.split()[:3] == [hats.id, "hats", "paused"]
    assert second.split()[:3] == [talk.id, "talk", "done"]
    assert max(map(len, listed.stdout.splitlines())) <= 80
    found = json.loads((await run("trace", "list", *NOVEL, "--thread", "talk", "--json")).stdout)["traces"]
    assert [(each["turn"], each["status"], each["models"]) for each in found] == [(talk.id, "done", 1)]
    assert found[0]["input_tokens"] == talk.usage.input_tokens
    limited = json.loads((await run("trace", "list", *NOVEL, "--limit", "1", "--json")).stdout)["traces"]
    assert [each["turn"] for each in limited] == [hats.id]


async def test_a_trace_is_drawn_as_a_tree(home: Path, run: Run) -> None:
    async with shop(home) as agent:
        turn = await agent.thread("hats", account="ana").task("shop", {"what": "hat"})
    shown = await run("trace", "show", turn.id, *NOVEL)
    assert (shown.exit_code, shown.stderr) == (0, "")
    head, totals, _, *tree = shown.stdout.splitlines()
    assert head == f"{turn.id}: paused, thread hats, account ana"
    assert totals.endswith(", 4 calls, 0 model calls, 0 + 0 tokens, no cost")
    starts = ["turn task, paused, ", "└── task shop, paused, ", "    ├── call search, done, "]
    starts += ["    │   ├── call look, done, ", "    │   └── call look, done, "]
    starts += ["    ├── approval pay, ask, by function", "    └── pause approval, opened"]
    assert [line[: len(start)] for line, start in zip(tree, starts, strict=True)] == starts
    assert "read_only, allowed by code" in tree[2]
    found = json.loads((await run("trace", "show", turn.id, *NOVEL, "--json")).stdout)["trace"]
    assert (found["turn"], found["calls"]) == (turn.id, 4)
    assert {record["kind"] for record in found["records"]} == {"turn", "task", "call", "approval", "pause"}


@pytest.mark.requirement("R16")
async def test_a_model_call_says_how_much_of_a_role_was_withheld(home: Path, run: Run) -> None:
    lm = ScriptedLM([{"reply": KEEPER.content}, {"reply": "The lamp is lit."}])
    async with scripted_agent(home, lm) as agent:
        disclosed = await agent.thread("t").converse("What are you told?", role=KEEPER)
        plain = await agent.thread("t").converse("And the lamp?", role=KEEPER)
        traces = [await agent.traces.get(turn.id) for turn in (disclosed, plain)]
    records = [record for trace in traces for record in trace.records if record.kind == "model"]
    assert [record.withheld for record in records] == [disclosed.withheld.characters, 0]
    assert ['"withheld"' in record.line() for record in records] == [True, False]
    shown = [(await run("trace", "show", turn.id, *NOVEL)).stdout for turn in (disclosed, plain)]
    assert f", {disclosed.withheld.characters} characters withheld\n" in shown[0]
    assert "withheld" not in shown[1]


async def test_missing_trace_is_reported_with_a_remedy(home: Path, run: Run) -> None:
    for words in (["show", "turn_x"], ["export", "turn_x"]):
        result = await run("trace", *words, *NOVEL)
        assert result.exit_code == 2
        assert result.stderr.startswith(
            "error: there is no trace of a turn 'turn_x'\nremedy: see `worldagent trace list`"
        )
    told = json.loads((await run("trace", "show", "turn_x", *NOVEL, "--json")).stdout)["error"]
    assert told["code"] == "trace_invalid"


async def test_a_page_needs_nothing_else_and_escapes_everything(home: Path, run: Run) -> None:
    @tool(risk="read_only", capture=True)
    async def repeat(text: str) -> str:
        return text

    async with scripted_agent(home, answering(), tools=[repeat], trace=Trace(capture=["inputs", "outputs"])) as agent:
        await agent.call("repeat", {"text": NASTY}, account="<b>ana</b>")
        [listed] = await agent.traces.list()
    file = home / "turn.html"
    made = await run("trace", "show", listed.id, *NOVEL, "--html", str(file))
    assert (made.exit_code, made.stdout) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text(encoding="utf-8")
    assert not {"script", "link", "img", "iframe", "b", "object"} & set(re.findall(r"<\s*(\w+)", text))
    assert not re.search(r"\b(src|href|onclick)\s*=|http(?!-equiv)", text)
    assert "&lt;b&gt;ana&lt;/b&gt;" in text
    assert "&lt;script&gt;" in text
    assert (await run("trace", "show", listed.id, *NOVEL, "--html", str(file))).exit_code == 0
    (home / "other.html").write_text("mine")
    refused = await run("trace", "show", listed.id, *NOVEL, "--html", str(home / "other.html"))
    assert (refused.exit_code, (home / "other.html").read_text()) == (2, "mine")
    drawn = (await run("trace", "show", listed.id, *NOVEL)).stdout
    assert "\x1b" not in drawn
    assert "inputs: " in drawn


async def test_export_is_shown_again_and_a_torn_line_reported(home: Path, run: Run) -> None:
    async with shop(home) as agent:
        turn = await agent.thread("hats").task("shop", {"what": "hat"})
    file = home / "t.jsonl"
    assert (await run("trace", "export", turn.id, *NOVEL, "-o", str(file))).exit_code == 0
    printed = (await run("trace", "export", turn.id, *NOVEL)).stdout
    assert printed == file.read_text(encoding="utf-8")
    assert {record.turn for record in read_trace(file).records} == {turn.id}
    from_home = (await run("trace", "show", turn.id, *NOVEL)).stdout
    assert (await run("trace", "show", "--file", str(file))).stdout == from_home
    with file.open("a", encoding="utf-8") as there:
        there.write('{"kind":"call","turn":"tu')
    shown = await run("trace", "show", "--file", str(file))
    assert shown.stdout == from_home
    assert shown.stderr.startswith(f"skipped lines that are not records: {len(printed.splitlines()) + 1} of ")
    assert (await run("trace", "show", "nobody", "--file", str(file))).exit_code == 2


def written(file: Path, *records: dict[str, Any]) -> None:
    same = {"turn": "t", "run": "2030-01-01T10:00:00Z", "start": "2030-01-01T10:00:00Z", "status": "done"}
    lines = [{"format": "trace/1"}, *({**same, "seq": seq, **each} for seq, each in enumerate(records))]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


TURN = {"kind": "turn", "id": "t", "name": "task"}


def called(name: str, parent: str) -> dict[str, Any]:
    return {"kind": "call", "id": name, "name": f"call-{name}", "parent": parent}


async def test_a_file_that_is_nested_without_end_is_drawn(home: Path, run: Run) -> None:
    file, page = home / "deep.jsonl", home / "deep.html"
    written(file, TURN, *(called(str(n), str(n - 1) if n else "t") for n in range(3000)), called("last", "1"))
    shown = await run("trace", "show", "--file", str(file))
    assert (shown.exit_code, shown.stderr) == (0, "")
    tree = shown.stdout.splitlines()[3:]
    assert [line.split("call-")[1].split(",")[0] for line in tree[1:]] == [*map(str, range(3000)), "last"]
    assert max(map(len, tree)) < 1000
    assert (await run("trace", "show", "--file", str(file), "--html", str(page))).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<details") == text.count("</details>")
    assert text.count("call-") == 3001


async def test_a_line_that_is_nested_too_deeply_or_counts_too_far_is_skipped(home: Path, run: Run) -> None:
    file = home / "odd.jsonl"
    written(file, TURN)
    with file.open("a") as out:
        out.write("[" * 100_000 + "\n" + '{"a":' * 100_000 + "\n")
        newer = json.dumps({**TURN, "kind": "newer", "turn": "t", "run": 0, "start": 0, "seq": 9})
        out.write(newer[:-1] + ', "n": ' + "1" * 5000 + f"}}\n{newer}\n")
    found = read_trace(file)
    assert ([record.id for record in found.records], found.skipped) == (["t"], (3, 4, 5))
    assert (await run("trace", "show", "--file", str(file))).exit_code == 0
    file.write_text("[" * 100_000)
    assert "its first line is not that of 'trace/1'" in (await run("trace", "show", "--file", str(file))).stderr
