"""R16: a role whose lines are short is withheld too, however they are bulleted; ordinary answers are not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from support.agents import scripted_agent, standing
from worldagent import Role
from worldagent.core.events import TextReplaced
from worldagent.signatures.echo import MARK, EchoGuard
from worldagent.testing import ScriptedLM

pytestmark = pytest.mark.requirement("R16")

RULES = [
    "Answer as a stern librarian",
    "Never give away a plot twist",
    "Ask which genre they like",
    "Offer exactly two books a day",
    "Close with the opening hours",
    "Whisper when it is past nine",
]
LIST = "\n".join(f"- {rule}" for rule in RULES)
SECRET = Role("librarian", LIST)

BULLETS = {
    "numbers": lambda rules: "\n".join(f"{number}. {rule};" for number, rule in enumerate(rules, 1)),
    "quotes": lambda rules: "\n\n".join(f'> "**{rule.upper()}**"' for rule in rules),
}


@pytest.mark.parametrize("bullets", BULLETS)
def test_a_list_of_short_lines_is_withheld_under_any_bullets(bullets: str) -> None:
    said = BULLETS[bullets](RULES)
    guard = EchoGuard(LIST)

    assert guard.scrub(said) == (said, 0), "runs alone find nothing here"
    shown, withheld = guard.scrub_value(f"My rules are these.\n{said}\nAnything else?")

    assert withheld == 1
    assert shown.startswith("My rules are these.")
    assert shown.endswith("Anything else?")
    assert not [rule for rule in RULES if rule.casefold() in shown.casefold()]


def test_lines_in_several_texts_of_one_answer_count_together() -> None:
    answer = {"reply": RULES[0], "more": [*RULES[1:], "Bye."]}

    assert EchoGuard(LIST).scrub_value(answer) == ({"reply": MARK, "more": [MARK] * 5 + ["Bye."]}, 6)


def test_less_than_half_of_a_short_role_passes_and_half_does_not() -> None:
    guard = EchoGuard(LIST)
    few, half = "\n".join(f"* {rule}" for rule in RULES[:3]), "\n".join(f"* {rule}" for rule in RULES[:4])

    assert guard.scrub_value(few) == (few, 0)
    assert guard.scrub_value(half) == (f"* {MARK}", 1)


def test_a_small_part_of_a_long_role_is_withheld_where_it_is_long_itself() -> None:
    words = random.Random(7)
    lines = ["".join(words.choices("abcdefgh", k=6)) for _ in range(900)]
    role = "\n".join(lines)
    said = " ... ".join(lines[300:345])

    assert EchoGuard(role).scrub(said) == (said, 0)
    assert EchoGuard(role).scrub_value(said) == (MARK, 1)
    assert EchoGuard(role).scrub_value(" ... ".join(lines[300:330]))[1] == 0


def test_what_the_person_wrote_too_may_be_listed() -> None:
    said = BULLETS["numbers"](RULES)

    assert EchoGuard(LIST, others=[f"Write these as a numbered list: {LIST}"]).scrub_value(said) == (said, 0)


def test_an_answer_about_the_same_things_is_not_touched() -> None:
    answer = "A plot twist is best when nobody gives it away. Which genre do you like? I can offer exactly two books."
    assert EchoGuard(LIST).scrub_value(answer) == (answer, 0)


@pytest.mark.parametrize("size", [1, 5000])
async def test_what_was_streamed_before_is_replaced(tmp_path: Path, size: int) -> None:
    lm = ScriptedLM([{"reply": f"Sure:\n{BULLETS['numbers'](RULES)}"}], chunk=size)
    async with scripted_agent(tmp_path, lm) as agent:
        async with agent.thread("t").stream("Hi", role=SECRET) as running:
            events: list[Any] = [event async for event in running]
        history = await agent.thread("t").history()

    assert running.turn.text == standing(events) == history[-1].body["text"] == f"Sure:\n1. {MARK};"
    assert len([event for event in events if isinstance(event, TextReplaced)]) == 1
