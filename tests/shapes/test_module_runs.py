"""T14: how modules of dspy run: the kinds that there are, what they are given, where their tools ask, how they end."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import anyio.from_thread
import dspy
import pytest
from dspy.primitives.code_interpreter import FinalOutput

from support.agents import CRITIC, paying, scripted_agent
from support.modules import KEEPER, SECRET, Answer, Question, Said, asking
from support.processes import eventually
from worldagent import Role, Shape
from worldagent.agent import Turn
from worldagent.core.errors import ContextExceeded, FunctionInvalid, InvalidArgument, LimitReached, TaskFailed
from worldagent.core.pauses import Approve
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import module_shape
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T14")


class One(dspy.Module):
    """One predictor, without a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict(Answer)


def saying(call: ScriptedCall) -> dict[str, str]:
    return {"answer": "A thing.", "reasoning": "so", "note": "noted"}


async def run(home: Path, module: dspy.Module, lm: ScriptedLM | None = None, role: Role = KEEPER) -> tuple[Turn, Any]:
    """Run a module as a task; gives the turn and the calls of the model."""
    lm = lm or ScriptedLM(saying)
    async with scripted_agent(home, lm, shapes=[asking(module)]) as agent:
        return await agent.thread("t").task("ask", Question(), role=role), lm.calls


# --- which predictors there are, and how they are called --------------------------------------------------------------


class Checked(dspy.ChainOfThought):
    """Its own forward, and the aforward of its base, which does not call it."""

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answer=f"{super().forward(**inputs).answer} Checked.")


async def test_a_forward_that_is_overridden_runs_and_not_the_aforward_of_the_base(tmp_path: Path) -> None:
    turn, _ = await run(tmp_path, Checked(Answer))
    assert turn.result == Said(answer="A thing. Checked.")


class PassesRole(dspy.Module):
    """Its forward has a role, as outside of an agent, and passes it on."""

    def __init__(self, *, is_async: bool) -> None:
        super().__init__()
        self.answer = dspy.Predict(Answer.insert(0, "role", dspy.InputField(default=None), str))
        if is_async:
            self.aforward = self._asked

    def forward(self, question: str, role: str | None = None) -> dspy.Prediction:
        made: dspy.Prediction = self.answer(question=question, role=role)
        return made

    async def _asked(self, question: str, role: str | None = None) -> dspy.Prediction:
        made: dspy.Prediction = await self.answer.acall(question=question, role=role)
        return made


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_module_can_pass_on_that_it_has_no_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(logging.getLogger("dspy.predict.predict"), "warning", lambda text, *_: warned.append(text))
    _, [call] = await run(tmp_path, PassesRole(is_async=is_async))
    assert call.role == SECRET
    assert warned == []


class AroundCompiled(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = dspy.ChainOfThought(Answer)
        self.inner.predict.demos = [dspy.Example(question="What is a shoe?", reasoning="r", answer="Footwear.")]
        self.inner._compiled = True

    async def aforward(self, question: str) -> dspy.Prediction:
        made: dspy.Prediction = await self.inner.acall(question=question)
        return made


async def test_a_compiled_part_gets_the_role_and_has_its_demonstrations(tmp_path: Path) -> None:
    _, [call] = await run(tmp_path, AroundCompiled())
    assert call.role == SECRET
    assert "Footwear." in call.text


def test_a_compiled_part_with_a_model_of_its_own_is_refused() -> None:
    module = AroundCompiled()
    module.inner.set_lm(ScriptedLM([]))
    with pytest.raises(FunctionInvalid, match=r"'inner\.predict'.* has a model of its own"):
        asking(module)


@pytest.mark.parametrize("saved", ["program", "state"])
async def test_a_module_that_was_saved_and_loaded_runs(tmp_path: Path, saved: str) -> None:
    module = dspy.ChainOfThought(Answer)
    module.predict.demos = [dspy.Example(question="What is a shoe?", reasoning="r", answer="Footwear.")]
    if saved == "program":
        module.save(tmp_path / "saved", save_program=True)
        module = dspy.load(str(tmp_path / "saved"), allow_pickle=True)
    else:
        module.save(tmp_path / "saved.json")
        module = dspy.ChainOfThought(Answer)
        module.load(tmp_path / "saved.json")
    _, [call] = await run(tmp_path / "home", module)
    assert call.role == SECRET
    assert "Footwear." in call.text


class Twins(One):
    """Two predictors, of which one is a copy of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.one = dspy.Predict("question -> note")
        self.two = self.one.deepcopy()

    async def aforward(self, question: str) -> dspy.Prediction:
        await self.one.acall(question=question)
        await self.two.acall(question=question)
        made: dspy.Prediction = await self.answer.acall(question=question)
        return made


@pytest.mark.parametrize("named", ["one", "two"])
async def test_a_role_reaches_one_of_two_copies(tmp_path: Path, named: str) -> None:
    _, calls = await run(tmp_path, Twins(), role=Role("r", "Be brief.", applies_to=(f"Answer.{named}",)))
    assert [call.role for call in calls] == ["Be brief." if each == named else None for each in ("one", "two", "")]


class Together(One):
    """The same call three times at the same time, on threads of dspy's."""

    def forward(self, question: str) -> dspy.Prediction:
        parallel = dspy.Parallel(num_threads=3, disable_progress_bar=True)
        made = parallel([(self.answer, {"question": question})] * 3)
        return dspy.Prediction(answer=" ".join(sorted(each.answer for each in made)))


async def test_equal_calls_at_the_same_time_are_calls_of_their_own(tmp_path: Path) -> None:
    turn, calls = await run(tmp_path, Together(), ScriptedLM(lambda call: {"answer": str(call.index)}))
    assert turn.result == Said(answer="1 2 3")
    assert [call.role for call in calls] == [SECRET] * 3


class AroundProgram(dspy.Module):
    """Asks with the program of a worker."""

    def __init__(self, program: dspy.Module) -> None:
        super().__init__()
        self.critic = program

    async def aforward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=(await self.critic.acall(request=question)).result)


async def test_a_program_of_an_agent_is_a_part_of_a_module_that_a_turn_runs(tmp_path: Path) -> None:
    async with scripted_agent(tmp_path / "one", ScriptedLM([]), workers=[CRITIC]) as agent:
        module = AroundProgram(agent.program("critic"))
    lm = ScriptedLM([{"result": "Dull."}])
    shape = module_shape("ask", module, params=Question, result=Said)
    async with scripted_agent(tmp_path / "two", lm, shapes=[shape]) as agent:
        turn = await agent.thread("t").task("ask", Question())
    assert turn.result == Said(answer="Dull.")
    assert turn.usage.calls == 1


class Thing:
    """Is not JSON."""

    def __str__(self) -> str:
        return "a thing"


class OfThings(One):
    def __init__(self, threads: int) -> None:
        super().__init__()
        self.look = dspy.Predict("thing -> note")
        self.parallel = dspy.Parallel(num_threads=threads, disable_progress_bar=True)

    def forward(self, question: str) -> dspy.Prediction:
        notes = self.parallel([(self.look, {"thing": Thing()}) for _ in range(2)])
        return dspy.Prediction(answer=" ".join(each.note for each in notes))


async def test_calls_with_inputs_that_are_not_json_are_made_one_after_the_other(tmp_path: Path) -> None:
    turn, _ = await run(tmp_path / "one", OfThings(1))
    assert turn.result == Said(answer="noted noted")
    with pytest.raises(InvalidArgument, match="run at the same time"):
        await run(tmp_path / "two", OfThings(2))


class OwnLoop(One):
    """A forward that runs its predictors on an event loop of its own."""

    def forward(self, question: str) -> dspy.Prediction:
        async def both() -> list[dspy.Prediction]:
            return list(await asyncio.gather(self.answer.acall(question="One?"), self.answer.acall(question="Two?")))

        return asyncio.run(both())[1]


async def test_a_module_can_call_its_predictors_on_a_loop_of_its_own(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda call: {"answer": f"{call.fields['question']} Yes."})
    turn, calls = await run(tmp_path, OwnLoop(), lm)
    assert turn.result == Said(answer="Two? Yes.")
    assert len(calls) == 2


class OwnModel(One):
    def forward(self, question: str) -> dspy.Prediction:
        with dspy.context(lm=ScriptedLM([])):
            made: dspy.Prediction = self.answer(question=question)
        return made


class OwnModelLater(One):
    def forward(self, question: str) -> dspy.Prediction:
        self.set_lm(ScriptedLM([]))
        made: dspy.Prediction = self.answer(question=question)
        return made


class OwnAdapter(One):
    def forward(self, question: str) -> dspy.Prediction:
        with dspy.context(adapter=dspy.JSONAdapter()):
            made: dspy.Prediction = self.answer(question=question)
        return made


class LateRole(One):
    def forward(self, question: str) -> dspy.Prediction:
        made: dspy.Prediction = dspy.Predict("question, role -> answer")(question=question, role="a judge")
        return made


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (OwnModel(), "has a model of its own"),
        (OwnModelLater(), "has a model of its own"),
        (OwnAdapter(), "adapter of its own"),
        (LateRole(), "passes a role to the predictor"),
    ],
)
async def test_what_cannot_run_is_refused_as_it_runs(tmp_path: Path, module: dspy.Module, says: str) -> None:
    lm = ScriptedLM([])
    with pytest.raises(FunctionInvalid, match=says):
        await run(tmp_path, module, lm)
    assert lm.calls == []


async def test_a_module_whose_model_is_set_later_is_refused_at_its_next_run(tmp_path: Path) -> None:
    module = OwnLoop()
    shape = asking(module)
    module.set_lm(ScriptedLM([]))
    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[shape]) as agent:
        with pytest.raises(FunctionInvalid, match="has a model of its own"):
            await agent.thread("t").task("ask", Question())


async def test_a_handler_that_runs_a_module_without_a_forward_fails(tmp_path: Path) -> None:
    async def ask(params: Question, ctx: TaskContext) -> Said:
        await ctx.run_module(One(), question=params.question)
        raise AssertionError("it has nothing to run")

    async with scripted_agent(tmp_path, ScriptedLM([]), shapes=[Shape("ask", Question, Said, ask)]) as agent:
        with pytest.raises(TaskFailed, match="AttributeError"):
            await agent.thread("t").task("ask", Question())


# --- what predictors take and give ------------------------------------------------------------------------------------

PNG = dspy.Image("data:image/png;base64,iVBORw0KGgo=")


class Look(dspy.Signature):
    """Look at it."""

    images: list[dspy.Image] = dspy.InputField()
    note: str = dspy.OutputField()


class Talk(dspy.Signature):
    """Talk."""

    history: dspy.History = dspy.InputField()
    said: str = dspy.InputField()
    note: str = dspy.OutputField()


class Write(dspy.Signature):
    """Write it."""

    what: Any = dspy.InputField()
    note: dspy.Code = dspy.OutputField()


class Listed(dspy.Signature):
    """List calls that are not tools'."""

    what: str = dspy.InputField()
    note: str = dspy.OutputField()
    calls: list[str] = dspy.OutputField()


class Given(One):
    """Calls a predictor with values, and notes what it gives."""

    noted: ClassVar[list[Any]] = []

    def __init__(self, signature: Any, demos: list[Any], **values: Any) -> None:
        super().__init__()
        self.other = dspy.Predict(signature)
        self.other.demos = demos
        self.values = values

    def forward(self, question: str) -> dspy.Prediction:
        self.noted.append(self.other(**self.values).note)
        made: dspy.Prediction = self.answer(question=question)
        return made


EARLIER = dspy.History(messages=[{"said": "Good morning.", "note": "A greeting."}])
GIVEN: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
    "images": (Look, [], {"images": [PNG, PNG]}),
    "history": (Talk, [], {"history": EARLIER, "said": "Hello."}),
    "code": (Write, [], {"what": "a loop"}),
    "an object": (Write, [], {"what": Thing()}),
    "a set": (Write, [], {"what": {"b", "a"}}),
    "bytes": (Write, [], {"what": b"\xff"}),
    "functions": (Write, [], {"what": [len]}),
    "no number": (Write, [], {"what": float("nan")}),
    "another prediction": (Write, [], {"what": dspy.Prediction(a=1)}),
    "calls": (Listed, [dspy.Example(what="earlier", note="n", calls=["mother"])], {"what": "x"}),
    "not all": ("what, more -> note", [], {"what": "x"}),
}


@pytest.mark.parametrize("given", GIVEN)
async def test_a_predictor_takes_and_gives_values_of_all_kinds(tmp_path: Path, given: str) -> None:
    signature, demos, values = GIVEN[given]
    module = Given(signature, demos, **values)
    Given.noted.clear()

    def answer(call: ScriptedCall) -> dict[str, Any]:
        return {"answer": "A thing."} if "question" in call.fields else {"note": "noted", "calls": ["father"]}

    _, [first, _] = await run(tmp_path, module, ScriptedLM(answer))
    assert [getattr(note, "code", note) for note in Given.noted] == ["noted"]
    assert len(first.media) == (2 if given == "images" else 0)
    assert ("Good morning." in first.text and "A greeting." in first.text) == (given == "history")
    assert ("mother" in first.text) == (given == "calls")
    assert "left out" not in first.text
    assert "more" not in first.fields


async def test_react_does_not_shorten_its_trajectory_when_the_context_is_full(tmp_path: Path) -> None:
    lm = ScriptedLM([*REACTED[:1], dspy.lm15.ContextLengthError("400: too long"), *REACTED[1:]])
    with pytest.raises(ContextExceeded):
        await run(tmp_path, dspy.ReAct(Answer, tools=[dspy.Tool(double, name="buy")]), lm)
    assert len(lm.calls) == 2


# --- the modules that run programs ------------------------------------------------------------------------------------


class Interpreter:
    """What runs programs, in place of dspy's own, which needs Deno."""

    def __init__(self) -> None:
        self.tools: dict[str, Callable[..., Any]] = {}

    def start(self) -> None:
        pass

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> str:
        return "3"

    def shutdown(self) -> None:
        pass


def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


PROGRAM = "```python\nprint(3)\n```"
PROGRAMS: dict[str, tuple[Callable[[Any], dspy.Module], list[dict[str, Any]]]] = {
    "ProgramOfThought": (
        lambda signature: dspy.ProgramOfThought(signature, interpreter_factory=Interpreter),
        [{"reasoning": "r", "generated_code": PROGRAM}, {"reasoning": "r", "answer": "3"}],
    ),
    "CodeAct": (
        lambda signature: dspy.CodeAct(signature, tools=[double], interpreter_factory=Interpreter),
        [{"generated_code": PROGRAM, "finished": True}, {"reasoning": "r", "answer": "3"}],
    ),
}


class DeclaredAnswer(Answer):
    """Answer it."""

    role: str = dspy.InputField(desc="How to answer")


@pytest.mark.requirement("R18")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("signature", [Answer, DeclaredAnswer])
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_module_that_runs_programs_has_its_model_calls_recorded(
    tmp_path: Path, kind: str, signature: Any
) -> None:
    make, answers = PROGRAMS[kind]
    turn, calls = await run(tmp_path, make(signature), ScriptedLM(answers))
    assert turn.result == Said(answer="3")
    assert turn.usage.calls == 2
    assert [call.role for call in calls] == [None, SECRET]
    assert ("role" in calls[0].system, "How to answer" in calls[1].system) == (False, signature is DeclaredAnswer)


class Recursive(Interpreter):
    """Runs the two programs of these tests."""

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        if code.strip() == "ask":
            return self.tools["llm_query"]("What is a hat?")
        return FinalOutput({"answer": "3"}) if code.strip() == "submit" else ""


@pytest.mark.parametrize("code", ["submit", "ask"])
async def test_rlm_runs_until_one_of_its_programs_asks_the_model(tmp_path: Path, code: str) -> None:
    lm = ScriptedLM([{"reasoning": "r", "code": code}])
    shape = asking(dspy.RLM(Answer, interpreter_factory=Recursive), entry=None)
    async with scripted_agent(tmp_path, lm, shapes=[shape]) as agent:
        asked = agent.thread("t").task("ask", Question())
        if code == "submit":
            assert (await asked).result == Said(answer="3")
        else:
            with pytest.raises(FunctionInvalid, match="must not call a model directly"):
                await asked


# --- pauses and ends --------------------------------------------------------------------------------------------------

REACTED: list[Any] = [
    {"next_thought": "t", "next_tool_name": "buy", "next_tool_args": {"what": "hat"}},
    {"next_thought": "t", "next_tool_name": "finish", "next_tool_args": {}},
    {"reasoning": "r", "answer": "Bought."},
]


class OnThread(dspy.Module):
    """A module on a thread; it counts how many of its runs have not ended."""

    running: ClassVar[list[int]] = []

    def __init__(self, inner: dspy.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, **inputs: Any) -> dspy.Prediction:
        self.running.append(1)
        try:
            made: dspy.Prediction = self.inner(**inputs)
        finally:
            self.running.pop()
        return made


def shopping(form: str) -> Shape[Question, Said]:
    """A shape whose module has a tool that calls a function of the agent."""

    async def ask(params: Question, ctx: TaskContext) -> Said:
        loop = asyncio.get_running_loop()

        async def buy(what: str) -> str:
            return str(await ctx.call("pay", {"what": what}))

        def buy_from_worker(what: str) -> str:
            return anyio.from_thread.run(buy, what)

        def buy_from_thread(what: str) -> str:
            return asyncio.run_coroutine_threadsafe(buy(what), loop).result()

        tools: dict[str, Any] = {"loop": buy, "worker": buy_from_worker, "thread": buy_from_thread}
        module: dspy.Module = dspy.ReAct(Answer, tools=[dspy.Tool(tools[form], name="buy")])
        if form != "loop":
            module = OnThread(module)
        return Said(answer=(await ctx.run_module(module, question=params.question)).answer)

    return Shape("ask", Question, Said, ask, entry=Answer)


@pytest.mark.parametrize("form", ["loop", "worker", "thread"])
async def test_a_tool_of_a_module_waits_for_a_person_and_nothing_is_repeated(tmp_path: Path, form: str) -> None:
    done: list[str] = []
    lm = ScriptedLM(REACTED)
    given: dict[str, Any] = {"shapes": [shopping(form)], "tools": [paying(done)]}
    async with scripted_agent(tmp_path, lm, **given) as agent:
        waiting = await agent.thread("t").task("ask", Question(), role=KEEPER)
        assert (waiting.status, len(lm.calls), done) == ("paused", 1, [])
        assert await eventually(lambda: not OnThread.running), "a thread is left"
    async with scripted_agent(tmp_path, lm, **given) as agent:
        turn = await agent.thread("t").resume(answers={waiting.pauses[0].id: Approve()}, role=KEEPER)
    assert turn.result == Said(answer="Bought.")
    assert (len(lm.calls), done) == (3, ["hat"])
    assert "paid hat" in lm.calls[1].text


def pools(before: set[threading.Thread]) -> list[threading.Thread]:
    """The threads of executors that have come since."""
    return [each for each in threading.enumerate() if each.name.startswith("ThreadPool") and each not in before]


@pytest.mark.parametrize("ended", ["cancelled", "closed"])
async def test_the_threads_of_a_module_end_with_its_turn(tmp_path: Path, ended: str) -> None:
    asked, before = asyncio.Event(), set(threading.enumerate())

    async def answer(call: ScriptedCall) -> dict[str, str]:
        if call.index == 3:
            asked.set()
        await asyncio.Event().wait()
        return {}

    async with scripted_agent(tmp_path, ScriptedLM(answer), shapes=[asking(OnThread(Together()))]) as agent:
        turn = asyncio.create_task(agent.thread("t").task("ask", Question()))
        await asyncio.wait_for(asked.wait(), 20)
        if ended == "cancelled":
            turn.cancel()
        else:
            await agent.aclose()
        await asyncio.wait({turn}, timeout=20)
        assert turn.done()
        assert await eventually(lambda: not OnThread.running)
    assert await eventually(lambda: not pools(before)), "threads of dspy's are left"
    if not turn.cancelled():
        turn.exception()


class CatchesAll(One):
    """Catches even what ends a thread, and calls again and again until the test is over."""

    over: ClassVar[threading.Event] = threading.Event()
    tries: ClassVar[list[int]] = []

    def forward(self, question: str) -> dspy.Prediction:
        while not self.over.is_set():
            try:
                self.answer(question=question)
            except BaseException:  # broad: as the worst module does
                self.tries.append(1)
        return dspy.Prediction(answer="I go on.")


class CatchesAllAwaited(CatchesAll):
    async def aforward(self, question: str) -> dspy.Prediction:
        while not self.over.is_set():
            try:
                await self.answer.acall(question=question)
            except BaseException:  # broad: as the worst module does
                self.tries.append(1)
        return dspy.Prediction(answer="I go on.")


@pytest.mark.parametrize("module", [CatchesAll(), CatchesAllAwaited()], ids=["thread", "loop"])
async def test_a_module_that_catches_everything_is_abandoned(tmp_path: Path, module: CatchesAll) -> None:
    lm = ScriptedLM(saying)
    module.over.clear()
    module.tries.clear()
    try:
        async with asyncio.timeout(10):
            async with scripted_agent(tmp_path, lm, shapes=[asking(module)], settings={"turn_tokens": 1}) as agent:
                with pytest.raises(LimitReached):
                    await agent.thread("t").task("ask", Question())
            assert await eventually(lambda: len(module.tries) > 2) or isinstance(module, CatchesAllAwaited)
    finally:
        module.over.set()
    assert len(lm.calls) == 1
    assert len(module.tries) < 200, "it uses the processor"
