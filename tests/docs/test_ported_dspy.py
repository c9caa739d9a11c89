"""Tutorials of dspy, ported in about ten lines each: the module is the tutorial's, and becomes a task of an agent.

The files that the docstrings name are in the repository stanfordnlp/dspy, opened at its commit 4ed377ee9. Data and
models that a tutorial downloads are a few lines here, and its model answers by what it is shown.
"""

import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from worldagent import Role, Storage, WorldAgent
from worldagent.graphs.shapes import module_shape
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T14")

# --- an optimised program ---------------------------------------------------------------------------------------------


class PeopleExtraction(dspy.Signature):
    """List the tokens that name a person, each token as an item of its own."""

    tokens: list[str] = dspy.InputField()
    extracted_people: list[str] = dspy.OutputField()


class Tokens(BaseModel):
    tokens: list[str]


class People(BaseModel):
    extracted_people: list[str]


def marked(*tokens: str) -> dspy.Example:
    """A sentence whose people are marked with a star."""
    people = [token[1:] for token in tokens if token.startswith("*")]
    plain = [token.removeprefix("*") for token in tokens]
    return dspy.Example(tokens=plain, expected_extracted_people=people).with_inputs("tokens")


TRAIN = [marked("*Nadim", "left", "Rome"), marked("Rain", "in", "Rome"), marked("*Ladki", "won")]
HELD_OUT = marked("Italy", "recalled", "*Marcello", "*Cuttitta")
NAMES = {"Nadim", "Ladki", "Marcello", "Cuttitta"}


def is_correct(example: Any, made: Any, trace: object = None) -> bool:
    return bool(made.extracted_people == example.expected_extracted_people)


def read(call: ScriptedCall) -> dict[str, Any]:
    """A model that joins the parts of a name, unless it is shown answers that do not."""
    found = [token for token in json.loads(call.fields["tokens"]) if token in NAMES]
    shown = [text for speaker, text in call.messages if speaker == "assistant" and "extracted_people" in text]
    return {"reasoning": "Names.", "extracted_people": found if shown or not found else [" ".join(found)]}


async def test_entity_extraction_passes_a_held_out_item_only_after_it_is_optimised(tmp_path: Path) -> None:
    """docs/docs/tutorials/entity_extraction/index.ipynb, with the way in which MIPROv2 gets demonstrations.

    Its labels have another name than the output field, so all demonstrations are answers that the metric accepted.
    """
    extractor = dspy.ChainOfThought(PeopleExtraction)
    optimiser = dspy.BootstrapFewShot(metric=is_correct, max_bootstrapped_demos=4)
    with dspy.context(lm=ScriptedLM(read)):
        optimised = optimiser.compile(extractor, trainset=TRAIN)
    optimised.save(tmp_path / "optimised.json")
    loaded = dspy.ChainOfThought(PeopleExtraction)
    loaded.load(tmp_path / "optimised.json")
    shapes = [
        module_shape(name, module, params=Tokens, result=People, entry=PeopleExtraction)
        for name, module in {"plain": extractor, "optimised": loaded}.items()
    ]
    lm, role = ScriptedLM(read), Role("clerk", "Be brief.")
    async with WorldAgent("news", lm=lm, shapes=shapes, storage=Storage(home=tmp_path)) as agent:
        plain = await agent.thread("t1").task("plain", {"tokens": HELD_OUT.tokens}, role=role)
        turn = await agent.thread("t2").task("optimised", {"tokens": HELD_OUT.tokens}, role=role)
    assert plain.result == People(extracted_people=["Marcello Cuttitta"])
    assert not is_correct(HELD_OUT, plain.result)
    assert is_correct(HELD_OUT, turn.result)
    assert [call.role for call in lm.calls] == ["Be brief.", "Be brief."]


# --- an agent ---------------------------------------------------------------------------------------------------------


class AirlineService(dspy.Signature):
    """You help people of an airline to book flights, with the tools that you are given."""

    user_request: str = dspy.InputField()
    process_result: str = dspy.OutputField(desc="what was done, with the confirmation number of a booking")


class Request(BaseModel):
    user_request: str


class Done(BaseModel):
    process_result: str


class Flight(BaseModel):
    flight_id: str
    price: float


def fetch_flight_info(origin: str, destination: str) -> list[Flight]:
    """Fetch the flights from an origin to a destination."""
    return [Flight(flight_id="DA123", price=200), Flight(flight_id="DA125", price=500)]


def pick_flight(flights: list[Flight]) -> Flight:
    """Pick the cheapest flight."""
    return min(flights, key=lambda flight: flight.price)


def book_flight(flight: Flight, name: str) -> str:
    """Book a flight for a person."""
    return f"confirmation number {flight.flight_id}-{name}"


def serve(call: ScriptedCall) -> dict[str, Any]:
    """A model that reads in its trajectory what it has done."""
    seen = call.fields["trajectory"]
    if "next_tool_name" not in call.system:
        number = re.search(r"confirmation number \S+-Adam", seen)
        return {"reasoning": "It is booked.", "process_result": f"Booked: {number[0] if number else 'nothing'}."}
    name, arguments = "fetch_flight_info", dict[str, Any](origin="SFO", destination="JFK")
    flights = [{"flight_id": found, "price": float(price)} for found, price in re.findall(r"(DA\d+)\D+(\d+\.\d)", seen)]
    if "confirmation number" in seen:
        name, arguments = "finish", {}
    elif "pick_flight" in seen:
        name, arguments = "book_flight", {"flight": flights[-1], "name": "Adam"}
    elif flights:
        name, arguments = "pick_flight", {"flights": flights}
    return {"next_thought": "Go on.", "next_tool_name": name, "next_tool_args": arguments}


async def test_the_agent_of_an_airline_books_a_flight(tmp_path: Path) -> None:
    """docs/docs/tutorials/customer_service_agent/index.ipynb: `dspy.ReAct` with tools that depend on each other."""
    react = dspy.ReAct(AirlineService, tools=[fetch_flight_info, pick_flight, book_flight])
    shape = module_shape("airline", react, params=Request, result=Done, entry=AirlineService)
    lm = ScriptedLM(serve)
    async with WorldAgent("airline", lm=lm, shapes=[shape], storage=Storage(home=tmp_path)) as agent:
        request = {"user_request": "please help me book a flight from SFO to JFK, my name is Adam"}
        turn = await agent.thread("t1").task("airline", request, role=Role("brief", "Answer in one line."))
    assert turn.result == Done(process_result="Booked: confirmation number DA123-Adam.")
    assert turn.usage.calls == 5
    assert "Answer in one line." in lm.calls[-1].text


# --- a module of several ----------------------------------------------------------------------------------------------

ABSTRACTS = (
    "Up Against It | Up Against It is a script that Joe Orton wrote for The Beatles.",
    "Joe Orton | Joe Orton was an English playwright.",
    "The Beatles | The Beatles were a band from Liverpool.",
)


def search(query: str) -> list[str]:
    """The abstracts of the page that a query names."""
    return [each for each in ABSTRACTS if each.startswith(f"{query} |")]


class Hops(dspy.Module):
    """Asks for the name of a page and takes notes of it, some times over."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.ask = dspy.ChainOfThought("claim, notes -> query")
        self.read = dspy.ChainOfThought("claim, notes, context -> new_notes: list[str], titles: list[str]")

    def forward(self, claim: str) -> dspy.Prediction:
        made: list[dspy.Prediction] = []
        for _ in range(self.count):
            notes = [note for each in made for note in each.new_notes]
            context = search(self.ask(claim=claim, notes=notes).query)
            made.append(self.read(claim=claim, notes=notes, context=context))
        return dspy.Prediction(titles=[title for each in made for title in each.titles])


class Claim(BaseModel):
    claim: str


class Pages(BaseModel):
    titles: list[str]


def research(call: ScriptedCall) -> dict[str, Any]:
    """A model that looks for the script of the claim, and then for the author in its notes."""
    if "context" not in call.fields:
        author = re.search(r"that (\w+ \w+) wrote", call.fields["notes"])
        return {"reasoning": "Next.", "query": author[1] if author else "Up Against It"}
    context = re.findall(r"([\w ]+) \| ([^|»]+)", call.fields["context"])
    return {"reasoning": "Read.", "new_notes": [text for _, text in context], "titles": [title for title, _ in context]}


async def test_multi_hop_search_finds_a_page_through_another(tmp_path: Path) -> None:
    """docs/docs/tutorials/multihop_search/index.ipynb: a module of two predictors in a loop, with plain `forward`."""
    shape = module_shape("hop", Hops(2), params=Claim, result=Pages, description="finds the pages of a claim")
    lm = ScriptedLM(research)
    async with WorldAgent("wiki", lm=lm, shapes=[shape], storage=Storage(home=tmp_path)) as agent:
        claim = "The author of the unproduced script Up Against It was a playwright."
        turn = await agent.thread("t1").task("hop", {"claim": claim})
    assert turn.result == Pages(titles=["Up Against It", "Joe Orton"])
    assert turn.usage.calls == len(lm.calls) == 4
