"""The week of the example workspace in one process: its events, and an owner who answers as the guide says."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from support.agents import open_pauses
from support.house import ROOT
from worldagent import Approve, Policy, Reject, Rule, Storage, WorldAgent, tool
from worldagent.core.errors import CallRefused, TaskFailed, UnknownEpisode, UnknownMember
from worldagent.members import SEND_RULES, Event, Gateway, WorkspaceConfig, load_workspace
from worldagent.members.data.roles import RoleStatus, TrustProfile
from worldagent.members.events.events import PostedEvent, read_event
from worldagent.testing import ScriptedCall, ScriptedLM

FOLDER: Final = ROOT / "examples" / "autonomous_workspace"
DAYS: Final = ("2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05", "2026-03-06")
_AT: Final = datetime(2026, 3, 4, tzinfo=UTC)


def _event(id_: str, type_: str, domain: str, **payload: Any) -> Event:
    return Event(id=id_, type=type_, source="user", domain=domain, payload=payload, timestamp=_AT)


APAC: Final = replace(
    _event("apac", "directive.spawn", "revenue", template_id="bdr", params={"territory": "APAC"}),
    source="charles",
    source_verified=True,
)
NAMED: Final[dict[str, list[tuple[Event, str | None]]]] = {
    "2026-03-04": [(_event("lead-wayne", "lead.created", "amer", company="Wayne", seats=80), "bdr-emea")],
    "2026-03-05": [(APAC, None)],
    "2026-03-06": [
        (_event("lead-nakatomi", "lead.created", "revenue", company="Nakatomi", seats=30), "bdr-apac"),
        (_event("press-globex", "press.mention", "marketing", title="Globex moves"), "cro"),
    ],
}
"""What the owner posts, with the member that it names."""


def _say(call: ScriptedCall) -> dict[str, Any]:
    return {"result": "Noted."} if "task" in call.fields else {"reply": "Noted."}


def changed(place: Path, *changes: tuple[str, str]) -> Path:
    """The file of the example with other texts in place of some."""
    text = (FOLDER / "demo.yaml").read_text(encoding="utf-8").replace("souls/cro.md", "You are the CRO.")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    place.write_text(text, encoding="utf-8")
    return place


def week_agent(home: Path, config: WorkspaceConfig, fails: str = "") -> WorldAgent:
    """The agent of the example, without its effects. What it does for one company can fail."""

    @tool(risk="write")
    async def qualify_lead(company: str, seats: int) -> str:
        if company == fails:
            raise ValueError(company)
        return f"{company} is worth a call"

    @tool(risk="destructive")
    async def offer_discount(company: str, percent: int) -> str:
        return f"{company} gets {percent} %"

    return WorldAgent(
        config.id,
        lm=ScriptedLM(_say),
        society=config,
        tools=[qualify_lead, offer_discount],
        policy=Policy(rules=(*SEND_RULES, Rule(decision="approve", function="qualify_lead"))),
        storage=Storage(home=home),
    )


async def lived(
    home: Path, file: Path, *, rejects: str = "", fails: str = "", tested: str = ""
) -> tuple[list[PostedEvent], dict[str, TrustProfile]]:
    """Go through the week. The owner approves what waits each day, and rates the run for Acme as bad on Tuesday.

    Args:
        home: The home.
        file: The file of the workspace.
        rejects: The company whose calls the owner rejects.
        fails: The company for which no run succeeds.
        tested: A member of the file that is joined in testing by code, and not by the file.

    Returns:
        The events, and the trust of each member, at its end.
    """
    config = load_workspace(file)
    spec = next((each for each in config.roles if each.role_id == tested), None)
    if spec is not None:
        config = replace(config, roles=tuple(each for each in config.roles if each is not spec))
    lines = (FOLDER / "week.jsonl").read_text(encoding="utf-8").splitlines()
    async with week_agent(home, config, fails) as agent:
        if spec is not None:
            await agent.society.join(spec, status=RoleStatus.TESTING)
        for day in DAYS:
            for event, to in NAMED.get(day, []):
                with suppress(UnknownMember):  # the template of the file makes no such member
                    await agent.society.events.post(event, to=to)
            for line in lines:
                if day in line:
                    await agent.society.events.post(read_event(json.loads(line), now=_AT))
            await _settled(agent, rejects)
            if day == DAYS[1]:
                with suppress(UnknownEpisode):  # it did not run
                    await agent.society.outcomes.rate("event.lead-acme", "bad")
        members = await agent.society.members.members(config.id)
        return [*await agent.society.events.list()], {each.id: each.trust for each in members}


async def _settled(agent: WorldAgent, rejects: str) -> None:
    """Deliver, and let the owner answer what waits, until nothing moves."""
    gateway, waiting = Gateway(agent), True
    while waiting:
        while await gateway.deliver():
            pass
        waiting = False
        for draft in await agent.society.spawns():
            waiting = bool(await agent.society.approve_spawn(draft.id))
        for state in await agent.threads(status="paused", archived=None):
            thread = agent.thread(state.thread, account=state.account)
            answers: dict[str, Any] = {}
            for each in await open_pauses(thread):
                rejected = rejects and each.arguments.get("company") == rejects
                answers[each.id] = Reject("No.") if rejected else Approve()
            if answers:
                waiting = True
                with suppress(TaskFailed, CallRefused):
                    await thread.resume(answers)
