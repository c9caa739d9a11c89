"""Reasoning in a text that nothing opens: a stream shows it as reasoning once the model is known to write so."""

import contextlib
from typing import Any

import pytest

from support.raw_service import Raw, events, raw_service
from worldagent.signatures import Listener, ModelOptions, Offer, OfferedTools, Predictor, open_model
from worldagent.signatures.converse import converse_signature

pytestmark = pytest.mark.requirement("H3")

INPUTS = {
    "history": None,
    "message": "Go.",
    **OfferedTools.of([Offer(name="search", description="", params={"type": "object", "properties": {}})]).inputs,
}


def pieces(*texts: str) -> Raw:
    deltas = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    return events([*deltas, {"choices": [{"delta": {}, "finish_reason": "stop"}]}])


async def test_reasoning_that_nothing_opens_is_expected_after_the_first_time() -> None:
    thinking = pieces("They want ", "a price.\n</th", "ink>\n\n", "Twenty.")
    opened = pieces("<think>", "hmm</think>\n", "Twenty.")
    plain = pieces("It is ", "twenty.")
    shown: list[Any] = []
    listener = Listener(
        field="reply",
        emit=shown.append,
        reason=lambda text: shown.append(("thinks", text)),
        withdraw=lambda: shown.append("WITHDRAWN"),
    )
    found = []
    async with raw_service(thinking, thinking, opened, plain, thinking, plain, plain) as service:
        model = await open_model("openai/stub", api_base=f"{service.url}/thinking", options=ModelOptions(attempts=1))
        async with contextlib.aclosing(model) as caller:
            for _ in range(7):
                shown.clear()
                answer = await Predictor(converse_signature(None))(INPUTS, caller, listener=listener)
                thought = "".join(each[1] for each in shown if isinstance(each, tuple))
                said = [each for each in shown if isinstance(each, str)]
                assert "".join(said).rpartition("WITHDRAWN")[2] == answer.fields["reply"]
                found.append((answer.fields["reply"], thought.strip(), said))
    price = ("Twenty.", "They want a price.", ["Twenty."])
    assert "WITHDRAWN" in found[0][2]
    assert found[1] == price, "the second time it is known"
    assert found[2] == ("Twenty.", "hmm", ["Twenty."])
    assert found[3] == ("It is twenty.", "", ["It is", " twenty."]), "an opening tag has ended it"
    assert found[5][0] == "It is twenty.", "a text without the tag is shown at its end"
    assert found[5][2] == ["It is twenty."]
    assert found[6] == ("It is twenty.", "", ["It is", " twenty."])
