"""The sidecar's tools about memory entries, which a host in another language uses as `agent.memory` (M4)."""

from pathlib import Path
from typing import Any

import pytest

from support.agents import answering, calls
from support.sidecar_app import MEMORY
from support.sidecar_calls import Refused
from support.sidecar_clients import StdioClient
from support.sidecar_served import agents, caller_of, served, tokens
from support.sidecars import over_stdio
from worldagent import Memory, Policy, Rule
from worldagent.hosts.sidecar import Grant, Sidecar
from worldagent.testing import ScriptedLM, scan_for_roles

pytestmark = pytest.mark.requirement("M4")

NUTS, HARBOUR = "Ana is allergic to nuts.", "The harbour opens at six."
QUESTION, SECRET = "Any nuts for the seventh keeper?", "The seventh keeper of the lighthouse says so."
MISSING = "mem_0000000000000000"
ON: dict[str, Any] = {MEMORY: "1"}
LOGGED: dict[str, Any] = {**ON, "WORLDAGENT_TESTS_LOGS": "1"}
REMEMBER = ("remember", {"text": HARBOUR, "everybody": True})

ADDED: list[tuple[dict[str, Any], str]] = [
    ({"text": SECRET * 100}, "text: String should have at most 4000 characters"),
    ({"text": f"{SECRET}\0"}, "the text of an entry must be a text that UTF-8 can encode and not blank"),
    ({"kind": SECRET}, "kind: Input should be 'entry', 'fact', 'episode' or 'insight'"),
    ({"tags": SECRET}, "tags: It should be an array"),
    ({"domain": f"{SECRET}\n"}, "`domain` must be"),
    ({"expires": SECRET}, "expires: It must be an RFC 3339 time with a time zone"),
    ({"source": {"by": SECRET}}, "an argument that the tool does not have"),
    ({"role": {"content": SECRET}}, "an argument that the tool does not have"),
]


async def refused(client: StdioClient, tool: str, **arguments: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        await client.ask(tool, **arguments)
    return dict(caught.value.told["structuredContent"]["error"])


async def add(client: Any, text: str, **more: Any) -> dict[str, Any]:
    entry: dict[str, Any] = (await client("memory_add", text=text, **more))["entry"]
    return entry


async def test_a_client_over_stdio_keeps_entries(tmp_path: Path) -> None:
    ana = {"account": "ana"}
    async with over_stdio(tmp_path / "home", **ON) as (_, client):
        given: dict[str, Any] = {"text": NUTS, "tags": ["food"], "kind": "fact", **ana}
        given |= {"classification": "secret", "domain": "health", "confidence": 0.5}
        given |= {"expires": "2999-01-02T00:00:00+01:00"}
        made = (await client.ask("memory_add", **given, untrusted=True, key="k1"))["entry"]
        assert made == {
            "id": made["id"],
            "version": 1,
            "text": NUTS,
            "account": "ana",
            "kind": "fact",
            "tags": ["food"],
            "source": {"by": "host"},
            "untrusted": ["host"],
            "classification": "secret",
            "domain": "health",
            "confidence": 0.5,
            "created": made["created"],
            "changed": made["created"],
            "expires": "2999-01-01T23:00:00Z",
            "replaced_by": None,
        }
        assert (await client.ask("memory_add", text="Another.", key="k1", **ana))["entry"] == made
        other = (await client.ask("memory_add", text="Another.", key="k1", account="ben"))["entry"]
        assert (other["text"], other["id"] != made["id"]) == ("Another.", True)
        assert (await client.ask("memory_show", entry=made["id"], **ana))["entry"] == made
        [found] = (await client.ask("memory_search", text="Any nuts?", **ana))["entries"]
        assert found.pop("score") > 0
        assert found == made
        edit = {"entry": made["id"], "version": 1, **ana}
        changed = (await client.ask("memory_edit", text="No nuts.", tags=[], **edit))["entry"]
        assert (changed["text"], changed["tags"], changed["version"]) == ("No nuts.", [], 2)
        assert changed["expires"] == made["expires"]
        kept = (await client.ask("memory_edit", entry=made["id"], expires=None, **ana))["entry"]
        assert (kept["expires"], kept["version"]) == (None, 3)
        assert (await refused(client, "memory_edit", text="Nuts.", **edit))["code"] == "entry_changed"
        assert (await client.ask("memory_forget", entries=[made["id"]], **ana))["forgotten"] == 1
        assert (await client.ask("memory_list", **ana))["entries"] == []
        assert (await refused(client, "memory_show", entry=made["id"], **ana))["code"] == "unknown_entry"


async def test_entries_are_listed_in_pages_and_filtered(tmp_path: Path) -> None:
    async with over_stdio(tmp_path / "home", **ON) as (_, client):
        for number in range(5):
            more = {"tags": ["odd"], "kind": "fact"} if number % 2 else {}
            await client.ask("memory_add", text=f"Boat {number}", account="ana", **more)
        seen, page = list[str](), {"limit": 2, "account": "ana"}
        while found := (await client.ask("memory_list", **page))["entries"]:
            seen += [entry["text"] for entry in found]
            page["before"] = found[-1]["id"]
        assert seen == [f"Boat {number}" for number in (4, 3, 2, 1, 0)]
        for wanted in ({"tags": ["odd"]}, {"kind": "fact"}):
            odd = (await client.ask("memory_list", account="ana", **wanted))["entries"]
            assert [entry["text"] for entry in odd] == ["Boat 3", "Boat 1"]
        hits = (await client.ask("memory_search", text="boat", account="ana", limit=3))["entries"]
        assert len(hits) == 3


async def test_a_turn_recalls_what_a_client_added(tmp_path: Path) -> None:
    async with over_stdio(tmp_path / "home", **ON) as (_, client):
        made = (await client.ask("memory_add", text=NUTS, account="ana"))["entry"]
        for account, expected in (("ana", [made["id"]]), ("ben", [])):
            arguments = {"thread": account, "account": account, "text": "Any nuts?", "detach": True}
            async with client.call("converse", arguments) as call:
                answer = await call.answer()
            assert answer["turn"]["recalled"] == expected
            shown = [event["entries"] for event in call.events if event["type"] == "memory_recalled"]
            assert [each for ids in shown for each in ids] == expected


async def test_refusals_name_the_rule_and_quote_nothing(tmp_path: Path) -> None:
    async with over_stdio(tmp_path / "home", **ON) as (_, client):
        for more, problem in ADDED:
            error = await refused(client, "memory_add", **{"text": NUTS, "account": "ana", **more})
            assert (error["code"], problem in error["problem"]) == ("invalid_argument", True), error
            assert SECRET not in str(error)
        missing: list[tuple[str, dict[str, Any]]] = [
            ("memory_show", {"entry": SECRET}),
            ("memory_edit", {"entry": SECRET, "text": "x"}),
            ("memory_forget", {"entries": [SECRET]}),
            ("memory_list", {"before": SECRET}),
        ]
        for tool, arguments in missing:
            error = await refused(client, tool, account="ana", **arguments)
            assert error["code"] == "unknown_entry"
            assert (error["problem"], error["remedy"]) == (
                "the caller sees no entry of the workspace with this id",
                "list the entries of this account for their ids",
            )
        nothing = await refused(client, "memory_edit", entry=MISSING)
        assert "It must have at least one of text, tags, expires" in nothing["problem"]
        assert (await client.ask("memory_list", account="ana"))["entries"] == []


KNOWN = tokens(
    ana=Grant(("novel",), ("ana",), ("ana-*",)),
    ben=Grant(("novel",), ("ben",)),
    both=Grant(("novel",), ("ana", "ben")),
    operator=Grant(("novel",), ("*",), operator=True),
)


async def test_two_accounts_do_not_see_each_others_entries(tmp_path: Path) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=answering(), memory=Memory()), tokens=KNOWN)
    async with served(sidecar) as url, caller_of(url, "auto", "ana") as ana, caller_of(url, "auto", "ben") as ben:
        mine, theirs = await add(ana, NUTS), await add(ben, "Ben likes nuts.")
        assert (mine["account"], theirs["account"]) == ("ana", "ben")
        assert (await ana.refused("memory_add", text=NUTS, account="ben"))["code"] == "forbidden"
        assert (await ana("memory_list"))["entries"] == [mine]
        assert [each["id"] for each in (await ben("memory_search", text="nuts"))["entries"]] == [theirs["id"]]
        for tool, name, more in (
            ("memory_show", "entry", {}),
            ("memory_edit", "entry", {"text": "x"}),
            ("memory_forget", "entries", {}),
            ("memory_list", "before", {}),
        ):
            there, missing = [
                await ana.refused(tool, **{name: [each] if name == "entries" else each}, **more)
                for each in (theirs["id"], MISSING)
            ]
            assert there == missing
            assert there["code"] == "unknown_entry"
        both = await ana.refused("memory_forget", entries=[mine["id"], theirs["id"]])
        assert both["code"] == "unknown_entry"
        assert (await ana("memory_list"))["entries"] == [mine]


async def test_only_an_operator_changes_the_entries_of_the_workspace(tmp_path: Path) -> None:
    sidecar = Sidecar(agents(tmp_path, lm=answering(), memory=Memory()), tokens=KNOWN)
    async with (
        served(sidecar) as url,
        caller_of(url, "auto", "operator") as operator,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "both") as both,
    ):
        harbour = await add(operator, HARBOUR)
        assert harbour["account"] is None
        for reader in (ana, both, operator):
            assert (await reader("memory_list"))["entries"] == [harbour]
            assert (await reader("memory_show", entry=harbour["id"]))["entry"] == harbour
        error = await both.refused("memory_add", text=HARBOUR)
        assert (error["code"], error["problem"]) == (
            "forbidden",
            "only an operator changes the entries of the workspace",
        )
        assert "name an account that the token can speak for" in error["remedy"]
        for caller in (ana, both):
            edit = {"entry": harbour["id"], "text": "x"}
            assert (await caller.refused("memory_edit", **edit))["code"] == "forbidden"
            assert (await caller.refused("memory_forget", entries=[harbour["id"]]))["code"] == "forbidden"
        later = await operator("memory_edit", entry=harbour["id"], text="It opens at seven.", account="ana")
        assert (later["entry"]["version"], later["entry"]["account"]) == (2, None)
        assert (await operator("memory_forget", entries=[harbour["id"]], account="ana"))["forgotten"] == 1


async def test_an_operator_distils_a_thread(tmp_path: Path) -> None:
    notes = {"notes": [{"text": NUTS, "replaces": ""}]}
    lm = ScriptedLM(lambda call: notes if "known" in call.fields else {"reply": "Noted."})
    sidecar = Sidecar(agents(tmp_path, lm=lm, memory=Memory()), tokens=KNOWN)
    async with (
        served(sidecar) as url,
        caller_of(url, "auto", "operator") as operator,
        caller_of(url, "auto", "ana") as ana,
    ):
        turn = (await ana("converse", thread="ana-1", text="I am allergic to nuts."))["turn"]
        assert (await ana.refused("memory_distil", thread="ana-1"))["code"] == "forbidden"
        [made] = (await operator("memory_distil", thread="ana-1"))["entries"]
        assert (made["text"], made["account"]) == (NUTS, "ana")
        assert made["source"] == {"by": "distilled", "thread": "ana-1", "turn": turn["id"]}
        assert (await operator("memory_distil", thread="ana-1"))["entries"] == []
        assert (await ana("memory_list"))["entries"] == [made]
        unknown = await operator.refused("memory_distil", thread="ana-2")
        assert (unknown["code"], "has no turn yet" in unknown["problem"]) == ("invalid_argument", True)


async def test_the_thread_of_an_entry_is_shown_to_tokens_that_reach_it(tmp_path: Path) -> None:
    free = Policy(rules=(Rule(decision="approve", function="remember"),))
    lm = ScriptedLM(lambda call: {"reply": "Done."} if call.steps else {"reply": "", **calls(REMEMBER)})
    more: dict[str, Any] = {"lm": lm, "memory": Memory(workspace_writes=True), "policy": free}
    async with (
        served(Sidecar(agents(tmp_path, **more), tokens=KNOWN)) as url,
        caller_of(url, "auto", "ana") as ana,
        caller_of(url, "auto", "ben") as ben,
    ):
        turn = (await ben("converse", thread="ben-1", text="It opens at six."))["turn"]
        [unreached], [reached] = [(await each("memory_list"))["entries"] for each in (ana, ben)]
        assert unreached["source"] == {"by": "model"}
        assert reached["source"] == {"by": "model", "thread": "ben-1", "turn": turn["id"]}


async def test_an_agent_without_memory_says_so(tmp_path: Path) -> None:
    tools: dict[str, dict[str, Any]] = {
        "memory_add": {"text": NUTS},
        "memory_list": {},
        "memory_search": {"text": NUTS},
        "memory_show": {"entry": MISSING},
        "memory_edit": {"entry": MISSING, "text": NUTS},
        "memory_forget": {"entries": [MISSING]},
        "memory_distil": {"thread": "t1"},
    }
    async with (
        served(Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)) as url,
        caller_of(url, "auto", "operator") as operator,
    ):
        for tool, arguments in tools.items():
            error = await operator.refused(tool, **arguments)
            assert (error["code"], error["problem"].startswith("this agent has no memory")) == (
                "invalid_argument",
                True,
            )
            assert "memory=Memory()" in error["remedy"]


async def test_no_log_has_an_entry_or_a_question(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with over_stdio(home, "2026-07-28", "--log-level", "debug", **LOGGED) as (sidecar, client):
        made = (await client.ask("memory_add", text=SECRET, tags=[SECRET], account="ana"))["entry"]
        assert (await client.ask("memory_search", text=QUESTION, account="ana"))["entries"]
        await client.ask("memory_list", tags=[SECRET], account="ana")
        await client.ask("memory_show", entry=made["id"], account="ana")
        await refused(client, "memory_add", text=SECRET, kind=SECRET)
        await client.ask("memory_edit", entry=made["id"], text=f"{SECRET} Twice.", account="ana")
        await client.ask("memory_forget", entries=[made["id"]], account="ana")
    log = sidecar.errors.read_text()
    assert log.count("tool=memory_") == 7
    places = {"log": log, "files": home}
    assert not [each for place in places.values() for each in scan_for_roles(place, [SECRET, QUESTION]).findings]
