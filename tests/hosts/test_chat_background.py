"""`worldagent chat` tells at once how work in the background stands, also while the person types."""

from pathlib import Path

import pytest

from support.chat import COMMAND, ENTER, shopping, starting

pytestmark = pytest.mark.requirement("T17")

DESK = (*COMMAND, "--app", "support.background:desk")


async def test_a_task_is_told_above_the_prompt_and_answered_on_its_thread(
    environment: dict[str, str], home: Path
) -> None:
    async with starting(shopping(environment), DESK, "workspace shop")() as terminal:
        assert await terminal.say("/background") == "the thread 'main' has no background tasks"
        terminal.write("What is Moby Dick about?" + ENTER)
        await terminal.shows("I let it be read.")
        await terminal.prompt()
        listed = await terminal.say("/background")
        assert "reader" in listed
        assert "queued" in listed or "running" in listed
        terminal.write("half a li")
        bells = terminal.raw.count(b"\x07")
        (home / "go").touch()
        await terminal.shows("(reader) waits for a person: see /background", "main> half a li")
        assert terminal.raw.count(b"\x07") == bells + 1
        terminal.write("\x15/background" + ENTER)
        await terminal.shows("paused")
        [line] = [each for each in terminal.lines if "paused" in each and "reader" in each]
        terminal.write(f"/thread {line.split()[-1]}" + ENTER)
        await terminal.shows("look")
        terminal.write("y" + ENTER)
        await terminal.shows("It is about whales.")
