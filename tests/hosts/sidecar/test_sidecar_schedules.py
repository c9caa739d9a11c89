"""The sidecar's tools about schedules, which a host in another language uses as the commands of `schedule` (T7)."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from support import forks
from support.agents import answering, scripted_agent
from support.command_line import COMMAND
from support.processes import ending
from support.sidecar_calls import Refused
from support.sidecar_clients import BOUND, StdioClient
from support.sidecar_served import agents, caller_of, served, tokens
from support.sidecars import environment, over_stdio
from support.web import by_header, client_of
from support.web import served as served_web
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.hosts.web import WebApp
from worldagent.scheduling import Cron, Schedule, Schedules, StartMessage

pytestmark = pytest.mark.requirement("T7")

TIDE: dict[str, Any] = {"schedule": "tide", "when": {"cron": "30 7 * * *"}, "starts": {"message": "Is it low?"}}
SECRET = "Answer as the keeper of the seventh lighthouse would answer."

INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({"when": {"cron": "0 0 31 2 *"}}, "invalid_argument", "when.cron: It cannot be used: give a day that exists"),
    ({"when": {"cron": SECRET}}, "invalid_argument", "when.cron: It cannot be used: give five, separated by blanks"),
    ({"when": {"cron": "@reboot"}}, "invalid_argument", "when.cron: It cannot be used: start the turn from your own"),
    ({"when": {}}, "invalid_argument", "when: It must have exactly one of cron, every, at"),
    ({"when": {"every": 0}}, "invalid_argument", "when.every: Input should be greater than or equal to 1"),
    ({"when": {"at": SECRET}}, "invalid_argument", "when.at: It must be a time"),
    ({"when": {"at": "2020-01-01T00:00"}}, "schedule_invalid", "never fires from now on"),
    ({"when": {"cron": "* * * * *", "start": "2030-01-01T00:00:00Z"}}, "invalid_argument", "only with `every`"),
    ({"zone": SECRET}, "invalid_argument", "zone: It cannot be used: use a name of the IANA database"),
    ({"schedule": SECRET}, "invalid_argument", "schedule: String should match pattern"),
    ({"starts": {}}, "invalid_argument", "starts: It must have exactly one of message, task, skill"),
    ({"starts": {"task": "none"}}, "unknown_shape", "there is no such shape"),
    ({"starts": {"task": "buy", "params": {"x": SECRET}}}, "params_invalid", "params"),
    ({"starts": {"skill": "tea"}}, "invalid_argument", "`skill` and `input` together"),
    ({"starts": {"skill": "tea", "input": "Two."}}, "unknown_skill", "there is no such skill"),
    ({"role": {"content": SECRET}}, "invalid_argument", "an argument that the tool does not have"),
    ({"tiers": ["call"]}, "invalid_argument", "tiers: Input should be 'thread'"),
    ({"thread": "t1"}, "schedule_invalid", "the thread 't1' of the schedule 'tide' is in use"),
    ({"schedule": "old"}, "name_taken", "there is a schedule 'old' already"),
]


async def refused(client: StdioClient, tool: str, **arguments: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        await client.ask(tool, **arguments)
    return dict(caught.value.told["structuredContent"]["error"])


async def test_a_client_over_stdio_keeps_schedules(tmp_path: Path) -> None:
    async with over_stdio(tmp_path / "home") as (_, client):
        added = await client.ask("schedule_add", **TIDE, zone="Europe/Berlin", account="ana", tiers=["account"])
        kept = added["schedule"]
        assert kept["next_slot"].endswith(("T05:30:00Z", "T06:30:00Z"))
        assert {**kept, "next_slot": None} == {
            "id": "tide",
            "when": {"cron": "30 7 * * *"},
            "starts": {"message": "Is it low?"},
            "account": "ana",
            "zone": "Europe/Berlin",
            "thread": "schedule:tide",
            "tiers": ["account"],
            "misfire": "once",
            "misfire_limit": 10,
            "overlap": "skip",
            "paused": False,
            "unattended": None,
            "guard": None,
            "untrusted": [],
            "next_slot": None,
        }
        assert (await client.ask("schedule_list"))["schedules"] == [kept]
        weekend = {**TIDE, "schedule": "weekend", "when": {"cron": "0 8 ? * fri-mon"}}
        assert (await client.ask("schedule_add", **weekend))["schedule"]["when"] == weekend["when"]
        await client.ask("schedule_remove", schedule="weekend")
        assert (await client.ask("schedule_show", schedule="tide"))["schedule"] == kept
        assert (await client.ask("schedule_pause", schedule="tide"))["schedule"]["paused"] is True
        begun = await client.ask("schedule_run", schedule="tide")
        assert begun["run"]["turn_id"]
        for step in begun["next"]:
            followed = await client.ask(step["tool"], **step["arguments"])
            assert followed["turn"]["status"] == "done"
        assert (await client.ask("schedule_pause", schedule="tide", paused=False))["schedule"]["paused"] is False
        async with asyncio.timeout(BOUND):
            while (runs := (await client.ask("schedule_history", schedule="tide"))["runs"])[0]["status"] == "started":
                pass
        assert [(each["turn_id"], each["status"], each["note"]) for each in runs] == [
            (begun["run"]["turn_id"], "done", None)
        ]
        [message, _] = (await client.ask("history", thread="schedule:tide"))["messages"]
        assert "Is it low?" in str(message["body"])
        assert (await client.ask("schedule_remove", schedule="tide"))["removed"] is True
        assert (await client.ask("schedule_list"))["schedules"] == []
        error = await refused(client, "schedule_show", schedule="tide")
        assert error["code"] == "unknown_schedule"


async def test_a_schedule_of_a_client_fires_in_a_worker(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with over_stdio(home) as (_, client):
        await client.ask("schedule_add", **{**TIDE, "when": {"every": 1}})
        async with ending(
            await forks.start((*COMMAND, "worker", "--app", "support.sidecar_app:shop"), env=environment(home))
        ) as worker:
            async with asyncio.timeout(BOUND):
                while not (runs := (await client.ask("schedule_history", schedule="tide"))["runs"]) or (
                    runs[-1]["status"] != "done"
                ):
                    pass
            worker.send_signal(signal.SIGTERM)
            await asyncio.wait_for(worker.communicate(), BOUND)
        assert (await client.ask("threads"))["threads"][0]["thread"] == "schedule:tide"


async def test_refusals_name_the_rule_and_store_nothing(tmp_path: Path) -> None:
    async with over_stdio(tmp_path / "home") as (_, client):
        await client.ask("converse", thread="t1", text="Hello.")
        await client.ask("schedule_add", **{**TIDE, "schedule": "old"})
        for more, code, problem in INVALID:
            error = await refused(client, "schedule_add", **{**TIDE, **more})
            assert (error["code"], problem in error["problem"]) == (code, True), error
            assert SECRET not in str(error)
        assert [each["id"] for each in (await client.ask("schedule_list"))["schedules"]] == ["old"]


KNOWN = tokens(
    ana=Grant(("novel",), ("ana",), ("schedule:ana-*",)),
    ben=Grant(("novel",), ("ben",)),
)


def tide(schedule: str = "tide", **more: Any) -> dict[str, Any]:
    return {**TIDE, "schedule": schedule, **more}


async def test_a_schedule_belongs_to_its_account_and_is_reached_by_its_thread(tmp_path: Path) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)
    changes = ("schedule_pause", "schedule_run", "schedule_remove")
    async with served(sidecar) as url, caller_of(url, "auto", "ana") as ana, caller_of(url, "auto", "ben") as ben:
        assert (await ana.refused("schedule_add", **tide(), thread="t1"))["code"] == "forbidden"
        assert (await ana.refused("schedule_add", **tide("ana-1", account="ben")))["code"] == "forbidden"
        await ana("schedule_add", **tide("ana-1"))
        await ben("schedule_add", **tide())
        assert [each["id"] for each in (await ana("schedule_list"))["schedules"]] == ["ana-1"]
        assert [each["id"] for each in (await ben("schedule_list"))["schedules"]] == ["ana-1", "tide"]
        for tool in (*changes, "schedule_show", "schedule_history"):
            there, missing = [await ana.refused(tool, schedule=each) for each in ("tide", "none")]
            assert there == missing
            assert there["code"] == "unknown_schedule"
        for tool in changes:
            assert (await ben.refused(tool, schedule="ana-1"))["code"] == "forbidden"
        assert (await ben("schedule_show", schedule="ana-1"))["schedule"]["account"] == "ana"


@pytest.mark.on_every_database
async def test_accounts_have_ids_of_their_own_and_keep_the_schedules_that_are_stored(tmp_path: Path) -> None:
    async with (
        scripted_agent(tmp_path, answering()) as agent,
        served_web(WebApp(agent, login=by_header)) as url,
        client_of(url, "ana") as ana,
        client_of(url, "bob") as bob,
    ):
        when, starts = Cron("0 0 * * *"), StartMessage("Hi.")
        given: dict[str, Any] = {"when": when, "starts": starts, "workspace": "novel"}
        await Schedules(agent).add(Schedule(id="old", account="ana", thread="ana:old", **given))
        for name, sent in (("tide", (ana, bob, ana, bob)), ("old", (bob, ana))):
            statuses = [(await each.post("/schedules", json=tide(name))).status_code for each in sent]
            assert statuses == {"tide": [200, 200, 409, 409], "old": [200, 409]}[name]
        both = await asyncio.gather(*(ana.post("/schedules", json=tide("once")) for _ in range(2)))
        assert sorted(each.status_code for each in both) == [200, 409]
        assert "use at most 47 characters" in (await bob.post("/schedules", json=tide("x" * 48))).text
        assert (await bob.get("/schedules/once")).status_code == 404
        listed = [(await each.get("/schedules")).json()["schedules"] for each in (ana, bob)]
        assert [[(each["id"], each["thread"]) for each in one] for one in listed] == [
            [("old", "ana:old"), ("once", "ana:schedule:once"), ("tide", "ana:schedule:tide")],
            [("old", "bob:schedule:old"), ("tide", "bob:schedule:tide")],
        ]
        run = (await bob.post("/schedules/tide/run", json={})).json()["run"]
        assert (await bob.get("/schedules/tide/runs")).json()["runs"][0]["slot"] == run["slot"]
        assert (await ana.get("/schedules/tide/runs")).json()["runs"] == []
        for name in ("tide", "old"):
            assert (await bob.put(f"/schedules/{name}/paused", json={"paused": True})).json()["schedule"]["paused"]
            assert (await ana.delete(f"/schedules/{name}")).status_code == 200
        left = {each.thread_id: each.paused for each in await Schedules(agent).list()}
        assert left == {"ana:schedule:once": False, "bob:schedule:old": True, "bob:schedule:tide": True}
