"""R12: `worldagent optimise` makes a program better for every role, and saves nothing that is not."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.teleprompt.gepa import gepa

from support import arithmetic
from support.agents import scripted_agent
from support.arithmetic import HINT, LM, write_examples
from support.command_line import BOUND, Run, home, refusal, run, started
from support.services import agent_at, in_words, named, service, told
from worldagent import Role, Tier
from worldagent.agent.optimising import Training, optimise_program
from worldagent.core.errors import (
    FunctionInvalid,
    InvalidArgument,
    ModelNotConfigured,
    OutputInvalid,
    WorldAgentError,
)
from worldagent.signatures import optimising
from worldagent.signatures.training import split_examples
from worldagent.testing import ScriptedLM, assert_no_role_leak

__all__ = ["home", "run"]  # fixtures

dspy_module: Any = sys.modules["dspy.dsp.utils.settings"]  # the package has an object of the same name

pytestmark = pytest.mark.requirement("R12")

SECRET = "Answer as the lighthouse keeper who has not spoken to a soul since the great storm of 1911."
STORED = "Never mention the seventh lantern, and count all that you say in dozens of herrings."
ROLES = ["Be as harsh as a winter.", "Answer like a pirate of the high seas.", "You are a shy librarian."]
UNSEEN = range(31, 41)


@pytest.fixture(autouse=True)
def _forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    LM.calls.clear()
    yield
    LM.calls.clear()


def words(name: str, file: Path, *more: str, metric: str = "exact") -> tuple[str, ...]:
    app = ("--app", "support.arithmetic:agent")
    return ("optimise", name, *app, "--examples", str(file), "--metric", f"support.arithmetic:{metric}", *more)


async def hits(place: Path, name: str, **more: Any) -> list[int]:
    """How many of the unseen numbers an agent squares, for each role."""
    found = []
    async with scripted_agent(
        place, ScriptedLM(arithmetic.skill), shapes=arithmetic.parts()["shapes"], **more
    ) as agent:
        for number, text in enumerate(ROLES):
            right = 0
            for each in UNSEEN:
                thread, role = agent.thread(f"t{number}_{each}"), Role("r", text)
                if name == "Converse":
                    said = (await thread.converse(str(each), role=role)).text
                else:
                    turn = await thread.task("square", {"number": str(each)}, role=role)
                    said = turn.result.answer
                right += said == str(each**2)
            found.append(right)
    return found


@pytest.mark.parametrize("name", ["Converse", "Square"])
@pytest.mark.parametrize(
    ("optimizer", "metric"), [("gepa", "with_feedback"), ("bootstrap", "exact"), ("mipro", "exact")]
)
async def test_an_optimised_program_is_better_for_roles_that_training_never_saw(
    run: Run, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, optimizer: str, metric: str
) -> None:
    if optimizer == "mipro":
        pytest.importorskip("optuna", reason="install the extra optimise")
    async with arithmetic.agent() as agent:
        await agent.roles.put(Tier.WORKSPACE, Role("keeper", STORED))
    examples = write_examples(tmp_path / "examples.jsonl", name, role=SECRET)
    budget = ("--budget", {"gepa": "40", "mipro": "2", "bootstrap": "light"}[optimizer])
    result = await run(*words(name, examples, "--optimizer", optimizer, *budget, "--json", metric=metric))
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["before"] < 0.5 < shown["after"] == 1.0
    assert (shown["saved"], shown["file"], shown["examples"]) == (True, f"{name}.json", {"train": 14, "held_out": 6})
    assert shown["usage"]["calls"] == len(LM.calls) > 0
    assert shown["usage"]["input_tokens"] > 0
    assert "score before: " in result.stderr
    assert "score after: 1.000" in result.stderr

    file = tmp_path / f"{name}.json"
    assert (HINT in file.read_text()) == (optimizer == "gepa") or optimizer == "mipro"
    assert max(await hits(tmp_path / "plain", name)) == 2
    assert await hits(tmp_path / "better", name, programs={name: file}) == [len(UNSEEN)] * 3
    seen = [file, result.output, LM.calls, [call.text for call in LM.calls], GLOBAL_HISTORY, dspy.settings.config]
    assert_no_role_leak([*seen, *(record.getMessage() for record in caplog.records)], [SECRET, STORED])
    assert_no_role_leak(home, SECRET)


async def test_the_same_seed_gives_the_same_split_and_program(run: Run, tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    files = []
    for number, seed in enumerate(("1", "1", "2")):
        files.append(tmp_path / f"{number}.json")
        more = ("--optimizer", "bootstrap", "--seed", seed, "--held-out", "0.5", "--out", str(files[-1]))
        result = await run(*words("Converse", examples, *more))
        assert result.exit_code == 0, result.output
    one, two, other = ([demo["message"] for demo in json.loads(f.read_text())["predict"]["demos"]] for f in files)
    assert one == two != other


async def test_a_program_that_is_not_better_is_not_saved(run: Run, tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    (tmp_path / "kept.json").write_text("before")
    more = ("--optimizer", "bootstrap", "--out", "kept.json", "--yes")
    result = await run(*words("Converse", examples, *more, metric="never"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "not better (0.000 before, 0.000 after" in result.stderr
    assert (tmp_path / "kept.json").read_text() == "before"
    shown = json.loads((await run(*words("Converse", examples, *more, "--json", metric="never"))).stdout)
    assert (shown["saved"], shown["file"]) == (False, None)


async def test_a_program_that_is_perfect_is_not_optimised(run: Run, tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    result = await run(*words("Converse", examples, metric="always"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "already has the score 1 (6 calls" in result.stderr
    assert "there is nothing to improve" in result.stderr
    assert len(LM.calls) == 6, "only the score before was measured"
    shown = json.loads((await run(*words("Converse", examples, "--json", metric="always"))).stdout)
    assert (shown["before"], shown["after"], shown["saved"]) == (1.0, 1.0, False)


async def test_a_file_is_overwritten_only_if_a_person_agrees(run: Run, tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    (tmp_path / "Converse.json").write_text("before")
    given = words("Converse", examples, "--optimizer", "bootstrap")
    error = await refusal(run, *given)
    assert error["message"] == "the file 'Converse.json' exists"
    assert "--yes" in error["remedy"]
    assert not LM.calls
    assert (tmp_path / "Converse.json").read_text() == "before"
    assert (await run(*given, "--yes")).exit_code == 0
    assert "instructions" in (tmp_path / "Converse.json").read_text()


async def test_answers_that_cannot_be_read_are_counted(run: Run, tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Square")
    given = [word.replace(":agent", ":muttering") for word in words("Square", examples)]
    result = await run(*given, "--budget", "40")
    assert result.exit_code == 1
    [last] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    found = re.findall(r"; (\d+) of (\d+) answers of the (\w+) unreadable", last)
    (bad, count, model), (unread, of, teacher) = found
    assert (model, teacher, unread) == ("model", "teacher", of)
    assert "remedy: use another model as --teacher, since none" in result.stderr
    assert 0 < int(bad) < int(count) / 2
    assert 0 < int(unread) < 20
    assert "score after: " in result.stderr
    assert f"; {unread} of {of} answers of the teacher unreadable" in result.stderr.split("score after: ")[1]
    shown = json.loads((await run(*given, "--budget", "40", "--json")).stdout)
    assert shown["unreadable"] == {"program": int(bad), "teacher": int(unread)}


async def test_a_teacher_that_cannot_be_read_ends_the_run(run: Run, tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Square")
    given = [word.replace(":agent", ":muttering") for word in words("Square", examples)]
    error = await refusal(run, *given, "--budget", "1000")
    assert error["code"] == "output_invalid"
    assert "none of the first 20 answers of " in error["message"]
    assert error["remedy"] == "use another model as --teacher"


async def test_a_teacher_whose_demonstrations_cannot_be_read_ends_the_run(tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse", 40)
    training = Training(examples=examples, metric=arithmetic.exact, optimizer="bootstrap", teacher="wise")
    teacher = ScriptedLM(lambda call: "")
    async with scripted_agent(tmp_path / "home", ScriptedLM(arithmetic.skill), models={"wise": teacher}) as agent:
        with pytest.raises(OutputInvalid, match="none of the first 20 answers of 'scripted' as the teacher"):
            await optimise_program(agent, "Converse", training)


async def test_an_optimizer_that_needs_an_unreadable_answer_names_the_teacher(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="install the extra optimise")
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    training = Training(examples=examples, metric=arithmetic.exact, optimizer="mipro", budget=2, teacher="wise")
    models = {"wise": ScriptedLM(lambda call: "")}
    async with scripted_agent(tmp_path / "home", ScriptedLM(arithmetic.skill), models=models) as agent:
        with pytest.raises(
            OutputInvalid, match=r"'mipro' cannot continue: .* the teacher could not be read; use another"
        ):
            await optimise_program(agent, "Converse", training)


async def test_debug_prints_what_a_metric_raised(run: Run, tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    given = words("Converse", examples, metric="raising")
    assert "secret" not in (await run(*given)).output
    told = (await run("--debug", *given)).stderr
    assert "debug: the metric raised builtins.ValueError: secret Example(" in told
    assert "arithmetic.py:" in told


def test_the_page_says_what_the_budgets_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "models.md").read_text(encoding="utf-8")
    for name, kept in optimising._DEMONSTRATIONS.items():
        tried: Any = {"metric": arithmetic.with_feedback, "auto": name, "reflection_lm": LM}
        candidates = gepa.AUTO_RUN_SETTINGS[name]["n"]
        base, one = (dspy.GEPA(**tried).auto_budget(1, candidates, size) for size in (0, 1))
        mipro = dspy.MIPROv2(arithmetic.exact, prompt_model=LM, task_model=LM)
        trials = mipro._set_num_trials_from_num_candidates(dspy.Predict("a -> b"), False, candidates)
        assert f"| `{name}` | {base:,} + {one - base} for each example | {trials} | {kept} |" in page


METRICS = {
    "raising": r"the metric 'support.arithmetic:raising' raised ValueError in 'arithmetic.py', line ",
    "text": r"returned 'str', which is not a number",
    "one_argument": r"cannot be called with an example and a prediction",
    "awaited": r"is not a function that returns a score",
    "number": r"is not a function that returns a score",
    "missing": r"--metric: the module 'support.arithmetic' has no 'missing'",
}


@pytest.mark.parametrize("optimizer", ["gepa", "bootstrap"])
@pytest.mark.parametrize("metric", METRICS)
async def test_a_metric_that_cannot_score_is_refused(run: Run, tmp_path: Path, metric: str, optimizer: str) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    error = await refusal(run, *words("Converse", examples, "--optimizer", optimizer, metric=metric))
    assert METRICS[metric] in error["message"]
    assert "secret" not in json.dumps(error)
    assert not (tmp_path / "Converse.json").exists()


@pytest.mark.parametrize("owner", [None, 1])
async def test_a_metric_that_configures_dspy_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None
) -> None:
    # dspy accepts `configure` from the first thread that calls it, and refuses it to others.
    monkeypatch.setattr(dspy_module, "config_owner_thread_id", owner)
    monkeypatch.setitem(dspy_module.main_thread_config, "max_history_size", 9)
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    error = await refusal(run, *words("Converse", examples, metric="configuring"))
    assert "the metric 'support.arithmetic:configuring' calls dspy.configure" in error["message"]
    assert "dspy.context" in error["remedy"]


@pytest.mark.parametrize("owner", [None, 1])
async def test_an_optimizer_that_configures_dspy_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None
) -> None:
    monkeypatch.setattr(dspy_module, "config_owner_thread_id", owner)
    monkeypatch.setitem(dspy_module.main_thread_config, "max_history_size", 9)

    class Configuring(dspy.BootstrapFewShot):
        def compile(self, student: Any, **given: Any) -> Any:
            dspy.configure(max_history_size=7)
            return super().compile(student, **given)

    monkeypatch.setattr(dspy, "BootstrapFewShot", Configuring)
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    error = await refusal(run, *words("Converse", examples, "--optimizer", "bootstrap"))
    assert "the optimizer 'bootstrap' calls dspy.configure" in error["message"]
    assert not (tmp_path / "Converse.json").exists()


EXAMPLES = {
    "no file": (None, "cannot be read (FileNotFoundError)"),
    "no JSON": ("hello", "line 1 of "),
    "no input": ('{"reply": "4"}', "lacks the input 'message'"),
    "no output": ('{"message": "4"}', "lacks any output: reply, calls"),
    "another type": ('{"message": "4", "reply": "5", "calls": 3}', "the field 'calls' in line 1"),
    "too few": ('{"message": "4", "reply": "5"}', "there are only 1 examples"),
}


@pytest.mark.parametrize("wrong", EXAMPLES)
async def test_examples_that_do_not_fit_are_refused(run: Run, tmp_path: Path, wrong: str) -> None:
    content, says = EXAMPLES[wrong]
    file = tmp_path / "examples.jsonl"
    if content is not None:
        file.write_text(content)
    assert says in (await refusal(run, *words("Converse", file)))["message"]
    assert not LM.calls


OPTIONS = {
    "a role": (("--role", "Be kind."), "optimised without a role"),
    "an optimizer": (("--optimizer", "magic"), "--optimizer 'magic' is unknown"),
    "a budget": (("--budget", "0"), "the budget '0' is unknown"),
    "a share": (("--held-out", "1"), "between 0 and 1"),
    "a folder": (("--out", "missing/x.json"), "cannot be saved to 'missing/x.json'"),
    "no JSON": (("--out", "x.pkl"), "cannot be saved to 'x.pkl'"),
}


@pytest.mark.parametrize("wrong", OPTIONS)
async def test_options_that_have_no_meaning_are_refused(run: Run, tmp_path: Path, wrong: str) -> None:
    more, says = OPTIONS[wrong]
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    assert says in (await refusal(run, *words("Converse", examples, *more)))["message"]
    assert not LM.calls


async def test_an_unknown_signature_is_refused_with_those_that_there_are(run: Run, tmp_path: Path) -> None:
    error = await refusal(run, *words("Nothing", write_examples(tmp_path / "examples.jsonl", "Converse")))
    assert "no Signature is called 'Nothing'" in error["message"]
    assert "Square" in error["remedy"]


# --- a running agent --------------------------------------------------------------------------------------------------


async def test_a_running_agent_uses_a_program_in_turns_that_begin_afterwards(tmp_path: Path) -> None:
    held, asked = asyncio.Event(), asyncio.Event()

    async def reply(call: Any) -> dict[str, str]:
        if "wait" in call.fields.get("message", ""):
            asked.set()
            await held.wait()
        return {"reply": "Better." if "Better instructions." in call.system else "Plain."}

    lm = ScriptedLM(reply)
    async with scripted_agent(tmp_path / "home", lm) as agent:
        program: Any = agent.program("Converse")
        program.predict.signature = program.predict.signature.with_instructions("Better instructions.")
        program.save(tmp_path / "converse.json")
        running = asyncio.ensure_future(agent.thread("t").converse("wait"))
        await asyncio.wait_for(asked.wait(), 20)
        await agent.use_program("Converse", tmp_path / "converse.json")
        assert (await agent.thread("u").converse("Hi", role=Role("r", SECRET))).text == "Better."
        held.set()
        assert (await running).text == "Plain."
        assert (await agent.thread("t").converse("Hi")).text == "Better."
        with pytest.raises(FunctionInvalid, match="has other fields"):
            await agent.use_program("Converse", dspy.Predict("message -> other"))
        with pytest.raises(FunctionInvalid, match="no Signature is called 'Nothing'"):
            await agent.use_program("Nothing", program)
        assert (await agent.thread("v").converse("Hi")).text == "Better."


async def test_a_model_that_fails_ends_the_run_with_its_error(tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    training = Training(examples=examples, metric=arithmetic.exact, optimizer="bootstrap")
    async with scripted_agent(tmp_path / "home", ScriptedLM(lambda call: RuntimeError("secret"))) as agent:
        with pytest.raises(WorldAgentError) as caught:
            await asyncio.wait_for(optimise_program(agent, "Converse", training), 60)
    assert "secret" not in str(caught.value)


async def test_cancelling_ends_the_run_and_its_calls(tmp_path: Path) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def reply(call: Any) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    training = Training(examples=examples, metric=arithmetic.exact, optimizer="bootstrap")
    async with scripted_agent(tmp_path / "home", ScriptedLM(reply)) as agent:
        running = asyncio.ensure_future(optimise_program(agent, "Converse", training))
        await asyncio.wait_for(asked.wait(), 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(ended.wait(), 20)


async def test_an_interrupt_ends_the_command_and_saves_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    write_examples(tmp_path / "home" / "examples.jsonl", "Converse")
    line = [word.replace(":agent", ":silent") for word in words("Converse", Path("examples.jsonl"), "--json")]
    async with started(tmp_path / "home", *line) as process:
        assert process.stderr is not None
        assert await asyncio.wait_for(process.stderr.readline(), BOUND) == b"asked\n"
        process.send_signal(signal.SIGINT)
        out, _ = await asyncio.wait_for(process.communicate(), BOUND)
    assert process.returncode == 130
    assert json.loads(out)["error"]["code"] == "interrupted"
    assert not (tmp_path / "home" / "Converse.json").exists()


async def test_a_teacher_makes_the_demonstrations(tmp_path: Path) -> None:
    def knows(call: Any) -> dict[str, str]:
        return {"reply": str(int(call.fields["message"]) ** 2)}

    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    teacher, lm = ScriptedLM(knows), ScriptedLM(arithmetic.skill)
    async with scripted_agent(tmp_path / "home", lm, models={"wise": teacher}) as agent:
        training = Training(examples=examples, metric=arithmetic.exact, optimizer="bootstrap", budget=2, teacher="wise")
        found = await optimise_program(agent, "Converse", training)
        assert (len(teacher.calls), len(found.program.predict.demos), found.better) == (2, 2, True)
        with pytest.raises(ModelNotConfigured, match="'nobody'"):
            await optimise_program(agent, "Converse", replace(training, teacher="nobody"))


async def test_an_optimizer_without_its_package_names_the_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldagent.signatures.optimising.find_spec", lambda name: None)
    examples = write_examples(tmp_path / "examples.jsonl", "Converse")
    error = await refusal(run, *words("Converse", examples, "--optimizer", "mipro"))
    assert "'optuna'" in error["message"]
    assert "worldagent[optimise]" in error["remedy"]
    assert not LM.calls


async def test_turns_that_were_kept_are_examples_and_bad_ones_are_no_demonstrations(tmp_path: Path) -> None:
    lm = ScriptedLM(arithmetic.skill)
    async with scripted_agent(tmp_path / "home", lm, settings={"examples": "all"}) as agent:
        with pytest.raises(InvalidArgument, match=r"only 0 examples of 'Converse'.* Settings\(examples='all'\)") as few:
            await optimise_program(agent, "Converse", Training(metric=arithmetic.square, optimizer="bootstrap"))
        assert f"the workspace {agent.workspace!r} kept in the home {str(tmp_path / 'home')!r}" in str(few.value)
        for number in range(1, 21):
            thread = agent.thread(f"t{number}")
            turn = await thread.converse(str(number), role=Role("keeper", SECRET))
            await thread.feedback(turn.id, "good" if turn.text == str(number**2) else "bad")
        training = Training(metric=arithmetic.square, optimizer="bootstrap", held_out=0.5)
        found = await optimise_program(agent, "Converse", training)
    assert found.better
    demos = found.program.predict.demos
    assert demos
    assert all(demo["reply"] == str(int(demo["message"]) ** 2) for demo in demos)
    found.program.save(tmp_path / "converse.json")
    assert_no_role_leak([tmp_path / "converse.json", found], SECRET)


@pytest.mark.parametrize("optimizer", ["mipro", "bootstrap"])
async def test_turns_that_were_bad_are_scored_and_not_only_left_out(tmp_path: Path, optimizer: Any) -> None:
    if optimizer == "mipro":
        pytest.importorskip("optuna", reason="install the extra optimise")
    lm = ScriptedLM(arithmetic.skill)
    training = Training(metric=arithmetic.square, optimizer=optimizer, held_out=0.4, budget=4)
    async with scripted_agent(tmp_path / "home", lm, settings={"examples": "all"}) as agent:
        threads = [agent.thread(f"t{number}") for number in range(1, 16)]
        turns = [await thread.converse(str(number)) for number, thread in enumerate(threads, 1)]
        for thread, turn in zip(threads, turns, strict=True):
            await thread.feedback(turn.id, "bad")
        asked = len(lm.calls)
        with pytest.raises(InvalidArgument, match=f"'{optimizer}' has no example to show.*'bad'; .*gepa"):
            await optimise_program(agent, "Converse", training)
        assert len(lm.calls) == asked, "nothing was spent"
        for number, (thread, turn) in enumerate(zip(threads, turns, strict=True), 1):
            await thread.feedback(turn.id, "bad" if number % arithmetic.EASY else "good")
        assert (await optimise_program(agent, "Converse", training)).better


def test_the_steps_of_a_turn_stay_on_one_side() -> None:
    examples = [dspy.Example(message=str(number), turn=str(number // 3)) for number in range(30)]
    train, held_out = split_examples(examples, held_out=0.4, seed=3, source="here", remedy="pass more")
    assert (len(train), len(held_out)) == (18, 12)
    assert not {example.turn for example in train} & {example.turn for example in held_out}


async def test_a_service_that_refuses_tools_gets_them_in_words_as_the_agent_sends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    examples = write_examples(tmp_path / "examples.jsonl", "Converse", 6)
    with service(*[in_words("25")] * 60) as stub:
        stub.refuses_tools = True
        async with agent_at(tmp_path / "home", stub, "chat") as agent:
            training = Training(metric=arithmetic.exact, examples=examples, optimizer="bootstrap")
            found = await optimise_program(agent, "Converse", training)
    first, *rest = stub.requests
    assert named(first)
    assert not [body for body in rest if named(body)]
    assert all("stock" in json.dumps(told(body)) for body in rest), "the agent's tools are in the prompt"
    assert found.usage.calls == len(rest)


@pytest.mark.local
async def test_the_embedded_model_can_be_optimised(tmp_path: Path) -> None:
    examples = write_examples(tmp_path / "examples.jsonl", "Converse", 4)
    async with scripted_agent(tmp_path / "home", "local") as agent:
        training = Training(metric=arithmetic.exact, examples=examples, optimizer="bootstrap", budget=1)
        found = await optimise_program(agent, "Converse", training)
    assert 3 <= found.usage.calls <= 5
    assert found.usage.input_tokens
    assert found.program.predict.demos
