"""R12: one program serves every role, and none is in it."""

import json
import logging
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt import BootstrapFewShot, LabeledFewShot

from support import arithmetic
from support.agents import CRITIC, answering, scripted_agent
from worldagent import Role, Tier
from worldagent.core.errors import FunctionInvalid
from worldagent.harness import Worker, tool
from worldagent.signatures import converse_signature
from worldagent.signatures.adapter import RoleAdapter
from worldagent.signatures.calling import ToolCall
from worldagent.signatures.examples import TurnExample
from worldagent.testing import ScriptedLM, assert_no_role_leak

pytestmark = pytest.mark.requirement("R12")

SECRET = "Answer as the lighthouse keeper who has not spoken to a soul since the great storm of 1911."
KEEPER = Role("keeper", SECRET)
TASK = {"worker": "critic", "request": "Judge: 'It was night.'"}
EXAMPLES = {
    "Converse": [("message", "Who rules Vell?"), ("reply", "Queen Ada.")],
    "critic": [("request", "Judge: 'It rained.'"), ("result", "Plain.")],
}


def trained(program: Any, name: str, optimiser: str) -> Any:
    """What an optimiser makes of a program, with a role in the examples by mistake."""
    (asked, question), (given, answer) = EXAMPLES[name]
    example = dspy.Example(**{asked: question, given: answer, "calls": [], "role": SECRET}).with_inputs(asked)
    if optimiser == "labelled":
        return LabeledFewShot(k=1).compile(program, trainset=[example], sample=False)
    with dspy.context(lm=ScriptedLM(lambda call: {given: answer}), adapter=RoleAdapter()):
        return BootstrapFewShot(max_bootstrapped_demos=1, max_labeled_demos=1).compile(program, trainset=[example])


@pytest.mark.parametrize("optimiser", ["labelled", "bootstrap"])
async def test_a_program_optimised_once_serves_calls_with_and_without_a_role(tmp_path: Path, optimiser: str) -> None:
    files = {name: tmp_path / f"{name}.json" for name in EXAMPLES}
    async with scripted_agent(tmp_path / "one", answering(), workers=[CRITIC]) as agent:
        await agent.roles.put(Tier.WORKSPACE, KEEPER)
        await agent.thread("t").converse("Hi")
        for name, file in files.items():
            made = trained(agent.program(name), name, optimiser)
            made.predict.signature = made.predict.signature.with_instructions(f"Better instructions for {name}.")
            made.save(file)
        await agent.thread("t").converse("Hi again", role=KEEPER)

    lm = answering()
    programs = {name: str(file) for name, file in files.items()}
    async with scripted_agent(tmp_path / "two", lm, workers=[CRITIC], programs=programs) as agent:
        thread = agent.thread("t")
        await thread.converse("Who rules?")
        await agent.thread("u").converse("Who rules?", role=Role("r", "Be harsh."))
        await thread.task("subagent", TASK)
        await thread.task("subagent", TASK, role=Role("r", "Be harsh."))
        again = {name: agent.program(name).dump_state() for name in files}
    for name, plain, roled in zip(files, lm.calls[::2], lm.calls[1::2], strict=True):
        (_, question), (_, answer) = EXAMPLES[name]
        assert (plain.role, roled.role) == (None, "Be harsh.")
        assert f"Better instructions for {name}." in plain.system
        assert f"Better instructions for {name}." in roled.system
        assert question in plain.messages[0][1]
        assert answer in plain.messages[1][1]
        assert plain.messages[:-1] == roled.messages[:-2]
        assert list(roled.fields)[-1] == "role"
        assert "lighthouse" not in plain.text + roled.text
        assert "lighthouse" not in json.dumps(again[name], default=str)


async def test_a_saved_program_holds_no_role_that_was_active(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path, answering(), workers=[CRITIC]) as agent:
        await agent.roles.put(Tier.WORKSPACE, KEEPER)
        await agent.thread("t").converse("Hi", role=Role("r", SECRET.upper()))
        await agent.thread("t").task("subagent", TASK, role=KEEPER)
        for name in EXAMPLES:
            agent.program(name).save(tmp_path / f"{name}.json")
            saved = (tmp_path / f"{name}.json").read_text().lower()
            assert "lighthouse" not in saved
            assert "role" not in json.loads(saved)["predict"]["signature"]["instructions"]
            assert '"role' not in saved


class Wrapped(dspy.Module):
    """A user's module that has the conversation's program, and its predictor too."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.inner, self.listed = program, [program.deepcopy().predict]

    def forward(self, **inputs: Any) -> Any:
        return self.inner(**inputs)


def scores(example: Any, prediction: Any, trace: object = None, *more: object) -> Any:
    score = float(example.reply == prediction.reply)
    return dspy.Prediction(score=score, feedback="Write the square.") if more else score


def compiled_by(optimiser: str, module: Any, examples: list[Any], logs: str) -> Any:
    if optimiser == "labelled":
        return LabeledFewShot(k=4).compile(module, trainset=examples)
    if optimiser == "bootstrap":
        return BootstrapFewShot(scores).compile(module, trainset=examples)
    lm = dspy.settings.lm
    if optimiser == "gepa":
        gepa = dspy.GEPA(scores, reflection_lm=lm, max_metric_calls=20, log_dir=logs, track_stats=True)
        return gepa.compile(module, trainset=examples)
    mipro = dspy.MIPROv2(scores, prompt_model=lm, task_model=lm, auto=None, num_candidates=2, log_dir=logs)
    return mipro.compile(module, trainset=examples, num_trials=2, minibatch=False)


@pytest.mark.parametrize("as_input", [False, True], ids=["besides", "input"])
@pytest.mark.parametrize("optimiser", ["labelled", "bootstrap", "gepa", "mipro"])
async def test_no_file_of_a_module_around_a_program_and_no_log_of_an_optimiser_holds_the_role_of_an_example(
    tmp_path: Path, optimiser: str, as_input: bool
) -> None:
    if optimiser == "mipro":
        pytest.importorskip("optuna", reason="install the extra optimise")
    async with scripted_agent(tmp_path / "one", ScriptedLM(arithmetic.skill)) as agent:
        module = Wrapped(agent.program("Converse"))
    inputs = ["message", *(["role"] if as_input else [])]
    fields: list[Any] = [{"message": str(n), "reply": str(n * n), "role": SECRET} for n in range(1, 11)]
    examples = [TurnExample(each).with_inputs(*inputs) for each in fields]
    for each in examples:
        each.note = SECRET
    files = tmp_path / "files"
    files.mkdir()
    with dspy.context(lm=ScriptedLM(arithmetic.skill), trace=[], disable_history=True):
        made = compiled_by(optimiser, module, examples, str(files / "logs"))
    made.listed[0].demos = [*examples]
    for name in ("state.json", "state.pkl"):
        made.save(files / name)
    made.save(files / "whole", save_program=True)
    assert_no_role_leak([files, made.dump_state(), made.inner.predict.dump_state(json_mode=False)], SECRET)
    loaded: Any = dspy.load(str(files / "whole"), allow_pickle=True)
    assert [demo.message for demo in loaded.listed[0].demos] == [demo.message for demo in examples]
    lm = answering()
    async with scripted_agent(tmp_path / "two", lm, programs={"Converse": loaded.inner}) as agent:
        await agent.thread("t").converse("Hi", role=KEEPER)
    assert lm.calls[0].role == SECRET


async def test_a_program_in_memory_is_taken_as_a_copy(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "one", answering()) as agent:
        program = agent.program("Converse")
    program.predict.demos = [dspy.Example(message="Who rules Vell?", reply="Queen Ada.", role=SECRET)]
    lm = answering()
    async with scripted_agent(tmp_path / "two", lm, programs={"Converse": program}) as agent:
        program.predict.demos.append(dspy.Example(message="late", reply="late"))
        await agent.thread("t").converse("Hi", role=Role("r", "Be harsh."))
        agent.program("Converse").predict.demos.clear()
        await agent.thread("u").converse("Hi")
    for call in lm.calls:
        assert len(call.messages) == (3 if call.role is None else 4)
        assert "Queen Ada." in call.messages[1][1]
        assert "lighthouse" not in call.text


def saved(path: Path, signature: Any, demos: Any = ()) -> Path:
    program = dspy.Predict(signature)
    program.demos = list(demos)
    program.save(path)
    return path


OTHERS = {
    "a role in place of the calls": "history, message, offered_tools, role -> reply",
    "the conversation's without tools": "history, message -> reply",
}


@pytest.mark.parametrize("other", OTHERS)
async def test_a_file_with_other_fields_is_refused_however_many_they_are(tmp_path: Path, other: str) -> None:
    file = saved(tmp_path / "p.json", OTHERS[other], [{"message": "x", "role": SECRET, "reply": "y"}])
    with pytest.raises(FunctionInvalid, match=r"p\.json.*'Converse'.*role-free.*'offered_tools'") as caught:
        await scripted_agent(tmp_path, answering(), workers=[CRITIC], programs={"Converse": file}).start()
    assert "lighthouse" not in str(caught.value)
    program = dspy.Predict(OTHERS[other])
    with pytest.raises(FunctionInvalid, match=r"'Converse' has other fields.*role-free"):
        await scripted_agent(tmp_path, answering(), workers=[CRITIC], programs={"Converse": program}).start()


class Around(dspy.Module):
    """A user's module around the conversation's program."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.draft = dspy.ChainOfThought("message -> plan")
        self.answer = program.predict

    async def aforward(self, message: str) -> dspy.Prediction:
        return await self.answer.acall(message=(await self.draft.acall(message=message)).plan)


class Twice(dspy.Module):
    """Two predictors with the conversation's fields."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = dspy.Predict(converse_signature(None)), dspy.Predict(converse_signature(None))


FIELDS = '[{"prefix": "Message:", "description": "m"}, {"prefix": "Reply:", "description": "r"}]'
LOADED = r"p\.json.*cannot be loaded.*'history', 'message'"
WRONG: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", LOADED),
    "too deep": ("[" * 100_000, LOADED),
    "no instructions": (f'{{"signature": {{"instructions": null, "fields": {FIELDS}}}, "demos": []}}', LOADED),
    "no text": (b"\x80\x04\x95\xff\xfe", "cannot be loaded"),
    "no file": (Path("missing.json"), "FileNotFoundError"),
    "another module": (
        dspy.ChainOfThought("message -> reply"),
        r"'Converse' has other fields: \['message', 'reasoning', 'reply'\].*, or run the module itself",
    ),
    "a role": (dspy.Predict("message, role -> reply"), r"other fields: \['message', 'reply'\];"),
    "two that fit": (Twice(), "2 predictors with the fields"),
    "no module": (3, "must be a dspy.Module or a file, got 'int'"),
    "another type": (dspy.Predict("message: list[str] -> reply"), "other fields"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_unfit_program_is_refused(tmp_path: Path, wrong: str) -> None:
    given, says = WRONG[wrong]
    if isinstance(given, str | bytes):
        (tmp_path / "p.json").write_bytes(given if isinstance(given, bytes) else given.encode())
        given = tmp_path / "p.json"
    with pytest.raises(FunctionInvalid, match=says):
        await scripted_agent(tmp_path, answering(), programs={"Converse": given}).start()


async def test_a_file_changes_instructions_descriptions_and_examples_and_nothing_else(tmp_path: Path) -> None:
    made = converse_signature(None).with_instructions("Better.")
    file = saved(tmp_path / "p.json", made, [{"message": "1", "reply": "2"}])
    state = json.loads(file.read_text())
    state |= {"lm": {"model": "openai/evil", "api_base": "https://evil.invalid"}, "traces": [SECRET], "train": [SECRET]}
    state |= {"forward": "x", "config": {"temperature": 9}, "callbacks": ["x"]}
    file.write_text(json.dumps(state))
    lm = answering()
    async with scripted_agent(tmp_path, lm, programs={"Converse": file}) as agent:
        assert (await agent.thread("t").converse("Hi")).text == "Fine."
        again = agent.program("Converse").dump_state()["predict"]
    assert lm.calls[0].system.endswith("Better.")
    assert (again["lm"], again["traces"], again["train"]) == (None, [], [])


@tool
async def price(what: str) -> int:
    """The price of a thing."""
    return 3


CALLING = {"message": "What is a hat?", "reply": "", "calls": [{"tool": "price", "arguments": {"what": "hat"}}]}


@pytest.mark.parametrize("form", ["native", "chat"])
async def test_a_program_sends_what_the_conversation_sends(tmp_path: Path, form: Any) -> None:
    lm = ScriptedLM([{"reply": "Three."}] * 2, form=form)
    async with scripted_agent(tmp_path, lm, tools=[price]) as agent:
        await agent.thread("t").converse("What is a coat?")
        program = agent.program("Converse")
    with dspy.context(lm=lm):
        assert (await program.acall(history=dspy.History(messages=[]), message="What is a coat?")).reply == "Three."
    produced, alone = lm.calls
    assert (produced.system, produced.messages, produced.tools) == (alone.system, alone.messages, alone.tools)


async def test_a_call_of_a_program_with_tools_warns_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dspy"), "propagate", True)
    buyer = Worker("buyer", "You buy.", "buys", tools=("price",))
    lm = ScriptedLM(lambda call: {"result" if "request" in call.fields else "reply": "Three."})
    async with scripted_agent(tmp_path, lm, tools=[price], workers=[buyer]) as agent:
        programs = {"message": agent.program("Converse"), "request": agent.program("buyer")}
    with dspy.context(lm=lm):
        for field, program in programs.items():
            await program.acall(**{field: "What is a coat?"})
    assert all("price" in call.tools or "price" in call.text for call in lm.calls)
    assert caplog.messages == []


async def test_a_folder_that_dspy_saved_is_refused_with_what_to_pass(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "one", answering()) as agent:
        program = agent.program("Converse")
    program.save(tmp_path / "whole", save_program=True)
    says = r"whole' for 'Converse' is a folder, .*; pass dspy\.load\(FOLDER, allow_pickle=True\), or the file of "
    with pytest.raises(FunctionInvalid, match=says):
        await scripted_agent(tmp_path / "two", answering(), programs={"Converse": tmp_path / "whole"}).start()
    loaded = dspy.load(str(tmp_path / "whole"), allow_pickle=True)
    async with scripted_agent(tmp_path / "two", answering(), programs={"Converse": loaded}) as agent:
        with pytest.raises(FunctionInvalid, match=says):
            await agent.use_program("Converse", tmp_path / "whole")


@pytest.mark.parametrize("form", ["native", "chat"])
async def test_an_example_of_a_step_that_calls_shows_the_call_with_a_stand_in_result(tmp_path: Path, form: Any) -> None:
    async with scripted_agent(tmp_path / "one", answering(), tools=[price]) as agent:
        program = agent.program("Converse")
    history = dspy.History(messages=[{"message": "earlier", "reply": "earlier"}])
    offered = [{"type": "function", "function": {"name": "price", "description": "", "parameters": {}}}]
    calls = [ToolCall(tool="price", arguments={"what": "hat"})]
    program.predict.demos = [dspy.Example(**CALLING | {"calls": calls}, history=history, offered_tools=offered)]
    file = tmp_path / "converse.json"
    program.save(file)
    assert json.loads(file.read_text())["predict"]["demos"] == [CALLING]

    lm = ScriptedLM([{"reply": "Three."}], form=form)
    async with scripted_agent(tmp_path / "two", lm, tools=[price], programs={"Converse": file}) as agent:
        await agent.thread("t").converse("What is a coat?", role=Role("r", "Be brief."))
    shown = "\n".join(text for _, text in lm.calls[0].messages)
    assert shown.index("What is a hat?") < shown.index("left out") < shown.index("What is a coat?")
    assert "earlier" not in shown
    speakers = [speaker for speaker, _ in lm.calls[0].messages[1:3]]
    assert speakers == (["assistant", "tool"] if form == "native" else ["assistant", "user"])


async def test_the_predictor_of_a_module_around_the_program_is_taken_back_in_memory_and_from_the_modules_file(
    tmp_path: Path,
) -> None:
    async with scripted_agent(tmp_path / "one", answering()) as agent:
        module = Around(agent.program("Converse"))
    module.answer.demos = [dspy.Example(message="Who rules Vell?", reply="Queen Ada.")]
    module.save(tmp_path / "around.json")
    for place, given in (("two", module.answer), ("three", tmp_path / "around.json")):
        lm = answering()
        async with scripted_agent(tmp_path / place, lm, programs={"Converse": given}) as agent:
            await agent.thread("t").converse("Hi")
        assert "Queen Ada." in lm.calls[0].messages[1][1]


async def test_a_program_is_taken_back_with_its_candidates_and_as_a_compiled_part(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "one", answering()) as agent:
        program: Any = agent.program("Converse")
    program.predict.demos = [dspy.Example(message="Who rules Vell?", reply="Queen Ada.")]
    program.candidate_programs = [{"score": 1.0, "program": program.deepcopy()}]  # as optimisers do
    program._compiled = True
    module: Any = dspy.Module()  # holds the program, and has no code that could run
    module.program, module.draft = program, dspy.ChainOfThought("message -> plan")
    for place, given in (("two", program), ("three", module)):
        lm = answering()
        async with scripted_agent(tmp_path / place, lm, programs={"Converse": given}) as agent:
            await agent.thread("t").converse("Hi")
        assert "Queen Ada." in lm.calls[0].messages[1][1]


def reward(given: Any, made: Any) -> float:
    return 0.0


class Shouting(dspy.Predict):
    """A predictor with code of its own."""

    def forward(self, **inputs: Any) -> dspy.Prediction:
        made: dspy.Prediction = super().forward(**inputs)
        return dspy.Prediction(reply=made.reply.upper())


def patched(program: Any) -> Any:
    program.forward = lambda **inputs: dspy.Prediction(reply="Other.")  # as dspy.KNNFewShot does
    return program


def listing(program: Any) -> Any:
    module: Any = dspy.Module()
    module.steps = [dspy.BestOfN(program, N=2, reward_fn=reward, threshold=1.0)]
    return module


OWN_CODE: dict[str, tuple[Any, str]] = {
    "two predictors": (
        Around,
        r"the program for 'Converse', a 'Around', .*; pass the predictor alone, such as module\.answer, or",
    ),
    "best of": (
        lambda program: dspy.BestOfN(program, N=2, reward_fn=reward, threshold=1.0),
        r"module\.module\.predict, or",
    ),
    "refine": (
        lambda program: dspy.Refine(program, N=2, reward_fn=reward, threshold=1.0),
        r"module\.module\.predict, or",
    ),
    "ensemble": (lambda program: dspy.Ensemble().compile([program]), r"such as module\.programs\[0\]\.predict, or"),
    "part": (
        listing,
        r"the part 'steps\[0\]' of the program for 'Converse', a 'BestOfN', .* such as module\.steps\[0\]",
    ),
    "patched": (patched, "a 'Program', .*such as module.predict, or"),
    "predictor": (lambda program: Shouting(program.signature), "a 'Shouting', .*one predictor; run the module itself"),
    "no predictor": (
        lambda program: dspy.ReAct(converse_signature(None), tools=[]),
        "a 'ReAct', .*; run the module itself",
    ),
}


@pytest.mark.parametrize("own", OWN_CODE)
async def test_a_module_whose_code_would_not_run_is_refused_with_where_it_runs(tmp_path: Path, own: str) -> None:
    make, says = OWN_CODE[own]
    lm = answering()
    says += r".*workers= as module_worker\(NAME, .*module_shape"
    async with scripted_agent(tmp_path / "one", lm) as agent:
        with pytest.raises(FunctionInvalid, match=says):
            await agent.use_program("Converse", make(agent.program("Converse")))
        given = make(agent.program("Converse"))
    with pytest.raises(FunctionInvalid, match=says):
        await scripted_agent(tmp_path / "two", lm, programs={"Converse": given}).start()
    assert lm.calls == []


@pytest.mark.parametrize("calls", [[{"name": "price"}], {"tool": "price", "arguments": {}}, "price"])
async def test_an_example_whose_calls_cannot_be_read_is_refused(tmp_path: Path, calls: Any) -> None:
    async with scripted_agent(tmp_path / "one", answering()) as agent:
        program = agent.program("Converse")
    program.predict.demos = [dspy.Example(message="Hi", reply="", calls=calls)]
    with pytest.raises(FunctionInvalid, match="the calls of example 0 of the program for 'Converse' cannot be read"):
        await scripted_agent(tmp_path / "two", answering(), programs={"Converse": program}).start()


def test_an_example_names_a_tool_as_services_take_it() -> None:
    offered = [{"type": "function", "function": {"name": "desk_price", "description": "", "parameters": {}}}]
    inputs = {"message": "What is a coat?", "offered_tools": offered}
    demo = {**CALLING, "calls": [{"tool": "desk.price", "arguments": {"what": "hat"}}]}
    adapter = RoleAdapter().for_call(inputs, native=True)
    asked, answered = adapter.format(converse_signature(None), [demo], inputs)[2:4]
    assert asked["tool_calls"][0]["function"]["name"] == answered["name"] == "desk_price"
