"""Inputs of the conversation that a capability fills: which can be, and what becomes of a value that does not fit."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, scripted_agent
from worldagent.agent.asking import MAX_CHARACTERS
from worldagent.core import Scope
from worldagent.core.capability import Capability, InputField, Runtime
from worldagent.core.errors import CapabilityFailed, FunctionInvalid, InvalidArgument


class Mood(Capability["Mood"]):
    """Fills the input `mood` with a value."""

    name = "moods"

    def __init__(self, value: Any = None, **field: Any) -> None:
        self._value, self._field = value, field

    def fields(self, runtime: Runtime) -> Iterable[InputField]:
        async def fill(scope: Scope) -> Any:
            return self._value

        return [InputField(**{"name": "mood", "description": "how the person feels", **self._field}, fill=fill)]


class Plain:
    """A class that pydantic knows nothing of."""


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({"name": name}, f"the input '{name}' of the capability 'moods' has no possible name, or one that is taken")
        for name in ("_x", "a b", "class", "fields", "instructions", "model_config", "message", "memory", "role")
    ),
    ({"name": 5}, "the input '5' of the capability 'moods' has no possible name"),
    ({"type": "int"}, "the input 'mood' of the capability 'moods' has no type, got 'int'"),
    ({"type": None}, "the input 'mood' of the capability 'moods' has no type, got None"),
    ({"type": Plain}, "the input 'mood' of the capability 'moods' has no JSON Schema"),
    ({"description": ""}, "the input 'mood' of the capability 'moods' has no description"),
]


@pytest.mark.requirement("T20")
@pytest.mark.parametrize(("field", "problem"), REFUSED)
def test_an_input_that_cannot_be_a_field_is_refused_with_its_capability(
    tmp_path: Path, field: dict[str, Any], problem: str
) -> None:
    with pytest.raises(FunctionInvalid, match=problem):
        scripted_agent(tmp_path, answering(), capabilities=[Mood(**field)])


@pytest.mark.requirement("T20")
async def test_an_input_that_is_none_is_not_in_the_prompt(tmp_path: Path) -> None:
    lm = answering()
    async with scripted_agent(tmp_path, lm, capabilities=[Mood()]) as agent:
        await agent.thread("1").converse("Hi")
        await agent.thread("1").converse("Hi", inputs={"mood": "glad"})
        await agent.thread("1").converse("Hi", inputs={"mood": None})
    assert [call.fields.get("mood") for call in lm.calls] == [None, "glad", None]
    assert "mood" not in lm.calls[0].fields
    assert "None" not in str(lm.calls[2].messages)


@pytest.mark.requirement("T20")
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (5, "the input 'mood' does not fit its type: .*; the capability 'moods' fills it; return another value"),
        ("x" * MAX_CHARACTERS, "the input 'mood' is longer than 100,000 characters as JSON; the capability 'moods'"),
    ],
)
async def test_a_value_that_does_not_fit_is_the_fault_of_its_capability(
    tmp_path: Path, value: Any, problem: str
) -> None:
    async with scripted_agent(tmp_path, answering(), capabilities=[Mood(value)]) as agent:
        with pytest.raises(CapabilityFailed, match=problem):
            await agent.thread("1").converse("Hi")
        assert await agent.thread("1").state() is None
        with pytest.raises(InvalidArgument, match="the input 'mood' does not fit its type"):  # the caller's own
            await agent.thread("1").converse("Hi", inputs={"mood": 5})
