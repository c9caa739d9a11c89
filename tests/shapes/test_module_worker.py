"""A module of dspy as the body of a worker, and which tiers of a role a turn says that it sent (T14)."""

import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from pydantic import BaseModel

from support.agents import calls, scripted_agent
from support.databases import rows_of
from support.processes import call_of, eventually, killed, start_script, wait_for_kill
from worldagent import Role, Shape
from worldagent.core import Tier
from worldagent.core.errors import FunctionInvalid, ParamsInvalid
from worldagent.graphs import TaskContext
from worldagent.graphs.shapes import module_shape, module_worker
from worldagent.testing import ScriptedCall, ScriptedLM

pytestmark = pytest.mark.requirement("T14")

ROLE = Role("harsh", "Judge as the harbour master who trusts no rope and no sailor.")


class Review(dspy.Signature):
    """Review a draft."""

    draft: str = dspy.InputField()
    verdict: str = dspy.OutputField()


class Draft(BaseModel):
    draft: str


class Verdict(BaseModel):
    verdict: str


def critic() -> Any:
    module = dspy.ChainOfThought(Review)
    return module_worker("critic", module, params=Draft, result=Verdict, description="judges drafts")


def reply(call: ScriptedCall) -> dict[str, Any]:
    if "verdict" in call.system and "Review a draft" in call.system:
        return {"reasoning": "It is short.", "verdict": "Fine."}
    return {"reply": "Good."} if call.steps else {"reply": "", **calls(("critic", {"draft": "Rope."}))}


async def test_a_conversation_calls_a_worker_whose_body_is_a_module(tmp_path: Path) -> None:
    lm = ScriptedLM(reply)
    async with scripted_agent(tmp_path, lm, workers=[critic()]) as agent:
        turn = await agent.thread("t").converse("Is it good?", role=ROLE)
        assert (turn.text, turn.usage.calls, turn.role_tiers) == ("Good.", 3, (Tier.CALL,))
        assert [call.role for call in lm.calls] == [ROLE.content, None, ROLE.content]
        assert "Fine." in str(lm.calls[-1].steps)
        assert (await agent.call("critic", {"draft": "Rope."})) == Verdict(verdict="Fine.")
        with pytest.raises(ParamsInvalid, match="draft"):
            await agent.thread("t").task("subagent", {"worker": "critic", "request": "{}"})


async def test_a_handler_dispatches_to_it(tmp_path: Path) -> None:
    async def judge(params: Draft, ctx: TaskContext) -> Verdict:
        made: Verdict = await ctx.call("critic", params)
        return made

    shape = Shape("judge", Draft, Verdict, judge)
    async with scripted_agent(tmp_path, ScriptedLM(reply), workers=[critic()], shapes=[shape]) as agent:
        assert (await agent.thread("t").task("judge", {"draft": "Rope."})).result == Verdict(verdict="Fine.")


@pytest.mark.parametrize(
    ("module", "params", "result", "says"),
    [
        (Review, Draft, Verdict, r"the module of worker 'critic' must be a dspy\.Module, got the Signature 'Review'"),
        (dspy.Predict(Review), None, Verdict, "the worker 'critic' must declare pydantic models as params and result"),
        (dspy.Predict(Review), Draft, str, "the worker 'critic' must declare pydantic models as params and result"),
    ],
)
def test_a_worker_is_a_module_with_models_as_params_and_result(
    module: Any, params: Any, result: Any, says: str
) -> None:
    with pytest.raises(FunctionInvalid, match=says):
        module_worker("critic", module, params=params, result=result)


@pytest.mark.parametrize("place", ["tools", "workers", "shapes"])
@pytest.mark.parametrize("given", [dspy.Predict(Review), dspy.Predict])
def test_a_module_elsewhere_is_refused_with_what_to_write(tmp_path: Path, place: str, given: Any) -> None:
    elsewhere: dict[str, Any] = {place: [given]}
    write = "workers=[module_worker(" if place == "workers" else "shapes=[module_shape("
    with pytest.raises(
        FunctionInvalid, match=rf"must hold only .*'Predict'; write {re.escape(write)}KEY, module, params="
    ):
        scripted_agent(tmp_path, ScriptedLM([]), settings=None, **elsewhere)


# --- role_tiers -------------------------------------------------------------------------------------------------------


async def ask_never(params: Draft, ctx: TaskContext) -> Verdict:
    return Verdict(verdict="unread")


async def ask_later(params: Draft, ctx: TaskContext) -> Verdict:
    if await ctx.calls.ask_person("Shall it be judged?", ["yes", "no"]) == "no":
        return Verdict(verdict="unread")
    return Verdict(verdict=(await ctx.predict(Review, draft=params.draft))["verdict"])


async def test_role_tiers_has_only_what_reached_a_model(tmp_path: Path) -> None:
    never = Shape("never", Draft, Verdict, ask_never, entry=Review)
    later = Shape("later", Draft, Verdict, ask_later, entry=Review)
    module = module_shape("module", dspy.ChainOfThought(Review), params=Draft, result=Verdict, entry=Review)
    draft = {"draft": "Rope."}
    async with scripted_agent(tmp_path, ScriptedLM(reply), shapes=[never, later, module]) as agent:
        assert (await agent.thread("n").task("never", draft, role=ROLE, key="k")).role_tiers == ()
        assert (await agent.thread("n").task("never", draft, role=ROLE, key="k")).role_tiers == ()  # as it is stored
        assert (await agent.thread("m").task("module", draft, role=ROLE)).role_tiers == (Tier.CALL,)
        for answer, tiers in (("no", ()), ("yes", (Tier.CALL,))):
            thread = agent.thread(answer)
            asked = await thread.task("later", draft, role=ROLE)
            assert (asked.status, asked.role_tiers) == ("paused", ())
            [pause] = asked.pauses
            assert (await thread.resume({pause.id: answer}, role=ROLE)).role_tiers == tiers


HANGS = {"there": ""}  # in a process that is killed: a query whose row is stored before the handler hangs


async def hang(home: Path) -> None:
    if query := HANGS["there"]:
        assert await eventually(lambda: bool(rows_of(home, query)))
        await wait_for_kill()


def hanging(home: Path, lm: ScriptedLM) -> Any:
    """An agent whose handlers end in `hang`."""

    def shape(name: str, handler: Any) -> Shape[Any, Any]:
        async def run(params: Draft, ctx: TaskContext) -> Verdict:
            made: Verdict = await handler(params, ctx)
            await hang(home)
            return made

        return Shape(name, Draft, Verdict, run, entry=Review)

    return scripted_agent(home, lm, shapes=[shape("never", ask_never), shape("later", ask_later)])


async def die(home: Path, key: str) -> None:
    """Run a turn until its handler hangs, in a process to kill."""
    HANGS["there"] = {
        "never": "SELECT 1 FROM wa_turn WHERE status='running'",
        "later": "SELECT 1 FROM wa_call WHERE kind='model' AND state='done'",
    }[key]
    async with hanging(home, ScriptedLM(reply)) as agent:
        thread = agent.thread("t")
        turn = await thread.task(key, {"draft": "Rope."}, role=ROLE)
        [pause] = turn.pauses
        await thread.resume({pause.id: "yes"}, role=ROLE)


@pytest.mark.parametrize(("key", "tiers"), [("never", ()), ("later", (Tier.CALL,))])
async def test_role_tiers_is_right_after_a_kill(tmp_path: Path, key: str, tiers: tuple[Tier, ...]) -> None:
    home = tmp_path / "home"
    await killed(await start_script(call_of(die, home, key)))
    lm = ScriptedLM([])
    async with hanging(home, lm) as agent:
        assert (await agent.thread("t").resume(role=ROLE)).role_tiers == tiers
    assert lm.calls == []


async def test_a_role_for_another_signature_is_not_listed(tmp_path: Path) -> None:
    other = Role("other", "Count every knot in the rope before you say anything at all.", applies_to=("Other",))

    class Other(dspy.Signature):
        """Another one."""

        draft: str = dspy.InputField()
        verdict: str = dspy.OutputField()

    async def judge(params: Draft, ctx: TaskContext) -> Verdict:
        return Verdict(verdict=(await ctx.predict(Review, draft=params.draft))["verdict"])

    shape = Shape("judge", Draft, Verdict, judge, entry=Review, signatures=(Other,))
    async with scripted_agent(tmp_path, ScriptedLM(reply), shapes=[shape]) as agent:
        assert (await agent.thread("t").task("judge", {"draft": "x"}, role=other)).role_tiers == ()
