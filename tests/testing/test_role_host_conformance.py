"""The checks of role hosts: a sound host passes every point, and each broken one fails at its own point alone."""

import asyncio
import json
import logging
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from support.broken_hosts import SLOW, broken_host
from support.processes import children, clean_environment, eventually
from support.raw_hosts import command as raw_program
from support.raw_hosts import plain_host, raw_host
from support.role_hosts import COMMAND, http_host, opened
from worldagent.core import Tier
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.role_host import Grant, Tokens
from worldagent.mcp_client import HttpHost, StdioHost
from worldagent.role_resolution import Role
from worldagent.testing import assert_no_role_leak
from worldagent.testing.role_host_conformance import (
    HOST_POINTS,
    Failed,
    HostCheckOptions,
    Result,
    assert_conforms,
    check_host,
)
from worldagent.testing.role_host_conformance.kit import Kit

WRITE = HostCheckOptions(write=True)
LIMITS = {
    "is slow": HostCheckOptions(write=True, slow=SLOW / 2),
    "hangs": HostCheckOptions(write=True, timeout=1),
}
"""Of the faults that are about time."""
TOKEN = "t0ken-of-the-novel"
SECRET = "Answer as the keeper of the seventh lighthouse would answer."

HTTP_FAULTS = {
    "lacks a tool": "tools.present",
    "offers the call tier": "tools.tiers",
    "gives no list": "list.answer",
    "hangs": "list.answer",
    "lists all": "list.empty",
    "gives two roles": "list.tiers",
    "renames": "get.agrees",
    "lists roles of others": "scope.apart",
    "says invalid": "get.not_found",
    "takes the thread tier": "error.tier",
    "takes more arguments": "error.arguments",
    "cuts ids": "error.scope",
    "names what is put": "put.answer",
    "trims texts": "put.text",
    "appends": "put.replace",
    "takes little": "put.long",
    "takes more than it may": "put.too_long",
    "fills blanks": "put.blank",
    "knows no tiers": "put.tiers",
    "deletes nothing gladly": "delete.again",
    "is slow": "speed.list",
    "mixes calls up": "load.many",
    "names no contract": "answer.contract",
    "gives more": "answer.fields",
    "shows roles in texts": "answer.text",
    "remembers refusals": "error.code",
    "repeats what was sent": "error.values",
    # These break several points.
    "has a code of its own": "put.too_long error.code",
    "keeps what is deleted": "delete.answer delete.again write.cleanup",
}
TOGETHER = {
    "refuses role_put": [
        "error.tier: role_put for an unknown tier gave the error unavailable and not invalid",
        "error.arguments: role_put without content gave the error unavailable and not invalid",
        "error.scope: role_put with an empty id gave the error unavailable and not invalid",
        "put.answer: role_put gave the error unavailable",
    ],
    "answers unknown tools + requires nothing + offers no account + differs between revisions + refuses role_list": [
        "tools.arguments: the schema of role_get does not require scope_id",
        "tools.tiers: the schema of role_get does not name the tier account",
        "protocol.same: its tools differ between the revisions",
        "list.answer: role_list gave the error unavailable",
        "error.tool: a call of an unknown tool gave a result of a tool",
    ],
    "deletes no channel + lists the first + lists by revision + gives ids + lists a workspace too + tires": [
        "tools.tiers: the tiers of role_get and role_put and role_delete differ",
        "protocol.same: role_list answers differ between the revisions",
        "put.replace: role_list still gives the role before",
        "list.records: role_list gave an entry that is not a role (extra_forbidden)",
        "list.tiers: role_list gave a role of a tier that was not asked for",
        "delete.answer: role_list gives a role that was deleted",
        "load.many: role_list gave the error unavailable",
    ],
    "lists nothing + gets roles of others + deletes without a role + tells of another address": [
        "put.text: role_list gave another text than was put",
        "put.too_long: a put that was refused changed the role",
        "put.blank: a put that was refused set a role",
        "list.records: role_list does not give a role that was put",
        "get.agrees: role_get and role_list give different workspace roles",
        "scope.apart: role_get of an unused scope gives the role of another",
        "delete.answer: role_delete answered without a role: role is missing",
        "delete.again: role_delete answered without a role: role is missing",
        "change.notice: it sent a notice of a change under another address",
        "write.cleanup: ",
    ],
}
"""Faults of one host, which show many points in one check, and how each begins to be reported."""
HALF_NOW = [pytest.param(fault, marks=[pytest.mark.soak] * (at % 2)) for at, fault in enumerate(HTTP_FAULTS)]
"""The other half in the soak: a check has a point for each, and takes a second."""
STDIO_FAULTS = {
    "copies into headers": "tools.arguments",
    "dies of a cancelled call": "load.cancelled",
    "logs roles": "answer.text",
    "writes garbage": "stdio.output",
}


def failed(results: list[Result]) -> list[str]:
    return [result.id for result in results if result.status == "fail"]


def missed(results: list[Result]) -> set[str]:
    return {result.id for result in results if result.status in ("fail", "skip")}


def told(results: list[Result]) -> str:
    return "\n".join(f"{each.status} {each.id}: {each.problem} {each.remedy}" for each in results)


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_the_reference_host_passes_every_point_and_nothing_is_left_in_it(kind: str, tmp_path: Path) -> None:
    store = tmp_path / "roles.db"
    options = HostCheckOptions(write=True, scopes={Tier.ACCOUNT: "ana"}, foreign={Tier.ACCOUNT: "ben"})
    before = children()
    if kind == "stdio":
        words = [*COMMAND, "--stdio", "--store", str(store), "--workspace", "*", "--account", "ana", "--channel", "*"]
        results = await check_host(StdioHost(words, env=clean_environment()), options)
    else:
        file = tmp_path / "tokens.toml"
        file.write_text(f'[[token]]\ntoken = "{TOKEN}"\nworkspace = ["*"]\naccount = ["ana"]\nchannel = ["*"]\n')
        with http_host(store, "--token-file", str(file)) as (url, _):
            results = await check_host(HttpHost(url, TOKEN), options)
    assert {result.status for result in results} == {"pass"}, told(results)
    assert rows(store) == []
    assert await eventually(lambda: children() <= before)


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("fault", HALF_NOW)
async def test_a_host_over_http_fails_at_the_point_that_it_breaks_and_at_no_other(fault: str) -> None:
    with broken_host(fault) as (url, host):
        results = await check_host(HttpHost(url), LIMITS.get(fault, WRITE))
        assert host.store.kept == {} or fault == "keeps what is deleted"
    assert failed(results) == HTTP_FAULTS[fault].split(), told(results)
    assert all(result.problem and result.remedy for result in results if result.status == "fail")


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("faults", TOGETHER)
async def test_every_point_that_a_host_breaks_is_reported_with_what_it_did(faults: str) -> None:
    with broken_host(faults) as (url, _):
        results = await check_host(HttpHost(url), WRITE)
    found = [f"{result.id}: {result.problem}" for result in results if result.status == "fail"]
    assert len(found) == len(TOGETHER[faults]), told(results)
    assert all(map(str.startswith, found, TOGETHER[faults])), told(results)


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("fault", STDIO_FAULTS)
async def test_a_host_over_stdio_fails_at_the_point_that_it_breaks_and_at_no_other(fault: str) -> None:
    before = children()
    results = await check_host(StdioHost(plain_host(fault)), WRITE)
    assert failed(results) == [STDIO_FAULTS[fault]], told(results)
    assert await eventually(lambda: children() <= before)


@pytest.mark.requirement("R9")
async def test_host_whose_output_schemas_take_no_errors_passes_and_is_usable() -> None:
    with broken_host("publishes schemas of successes alone") as (url, _):
        results = await check_host(HttpHost(url), WRITE)
        assert missed(results) == {"scope.forbidden"}, told(results)
        async with opened(HttpHost(url)) as store:
            assert await store.get(Tier.ACCOUNT, "ana") is None
            await store.put(Tier.ACCOUNT, "ana", Role("French", "Answer in French."))
            assert await store.get(Tier.ACCOUNT, "ana") is not None


async def test_without_a_fault_a_host_over_stdio_passes_every_point() -> None:
    results = await check_host(StdioHost(plain_host()), WRITE)
    assert missed(results) == {"scope.forbidden", "protocol.same", "change.notice"}, told(results)
    assert {result.id: result.detail for result in results}["protocol.revision"] == "2025-11-25"


async def test_a_host_of_an_unknown_revision_fails_there() -> None:
    results = await check_host(StdioHost(raw_program("an unknown revision")), WRITE)
    assert failed(results) == ["protocol.revision"], told(results)


async def test_a_program_that_writes_lines_without_end_fails() -> None:
    async with asyncio.timeout(60):
        results = await check_host(StdioHost(raw_program("chatter")), HostCheckOptions(timeout=20))
    problem = "wrote something that is not an MCP message"
    assert any(problem in result.problem for result in results if result.status == "fail"), told(results)


async def test_a_host_that_looks_at_no_token_and_one_that_ignores_its_scopes_are_found() -> None:
    options = HostCheckOptions(write=True, scopes={Tier.WORKSPACE: "novel"}, foreign={Tier.WORKSPACE: "other"})
    for fault, point in {"checks no token": "http.token", "ignores scopes of tokens": "scope.forbidden"}.items():
        grant = Grant({Tier.WORKSPACE: frozenset({"novel"})})
        with broken_host(fault, tokens=Tokens([(TOKEN, grant)]), grant=grant) as (url, host):
            results = await check_host(HttpHost(url, TOKEN), options)
            assert host.store.kept == {}
        assert failed(results) == [point], told(results)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "list.answer: this caller must not use the scopes that were read"),
        ({"scopes": {Tier.ACCOUNT: "ana"}}, "list.answer: this caller must not use the account scope"),
        ({"scopes": {Tier.CHANNEL: "c1"}, "write": True}, "write.scope: the host keeps no channel roles"),
    ],
)
async def test_scopes_that_caller_or_host_lack_are_reported(options: dict[str, Any], problem: str) -> None:
    with broken_host("offers no channel", grant=Grant({})) as (url, _):
        results = await check_host(HttpHost(url), HostCheckOptions(**options))
    assert f"fail {problem}" in told(results)


async def test_a_slow_host_and_one_that_lets_a_page_of_another_site_in_are_warned_of() -> None:
    with broken_host("serves pages") as (url, _):
        results = await check_host(HttpHost(url), HostCheckOptions(slowish=0))
        warned = [result.id for result in results if result.status == "warn"]
        assert warned == ["speed.list", "http.token", "http.page"]
        remote = await check_host(HttpHost(url.replace("127.0.0.1", "0.0.0.0")), HostCheckOptions(slow=0))
    assert failed(remote) == ["speed.list"]
    assert {result.id: result.problem for result in remote}["http.page"].startswith("it is not on this machine")


@pytest.mark.parametrize(
    "argv",
    [
        ["no-such-program-anywhere"],
        [sys.executable, "-c", "raise SystemExit(3)"],
        [sys.executable, "-c", "import time; time.sleep(600)"],
        [sys.executable, "-c", "import os\nwhile True: os.write(1, b'x' * 65536)"],
    ],
    ids=["missing", "ends", "silent", "floods"],
)
async def test_another_program_fails_to_connect_in_bounded_time(argv: list[str]) -> None:
    before = children()
    async with asyncio.timeout(60):
        results = await check_host(StdioHost(argv), HostCheckOptions(write=True, timeout=1))
    assert failed(results) == ["connect.time"], told(results)
    assert {result.status for result in results} == {"fail", "skip"}
    assert await eventually(lambda: children() <= before)


async def test_a_link_that_is_lost_fails_its_point_if_no_point_before_did() -> None:
    with pytest.raises(Failed):
        await Kit(StdioHost(["no-such-program-anywhere"]), WRITE).link()


async def test_an_address_without_a_host_fails_to_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        results = await check_host(HttpHost(url), HostCheckOptions(timeout=0.5))
        assert failed(results) == ["connect.time"], told(results)
    results = await check_host(HttpHost(url), HostCheckOptions(timeout=5))
    assert failed(results) == ["connect.time"], told(results)


async def test_a_wrong_token_is_named() -> None:
    with broken_host(tokens=Tokens([(TOKEN, Grant({Tier.WORKSPACE: frozenset({"*"})}))])) as (url, _):
        [first, *_] = await check_host(HttpHost(url, "another"))
    assert (first.id, first.status) == ("connect.time", "fail")
    assert "401" in first.problem
    assert "another" not in first.problem


async def test_without_write_no_role_is_put_or_deleted() -> None:
    with broken_host() as (url, host):
        kept = {(Tier.WORKSPACE, "novel"): Role("house", SECRET)}
        host.store.kept |= kept
        results = await check_host(HttpHost(url), HostCheckOptions(scopes={Tier.WORKSPACE: "novel"}))
        assert host.store.kept == kept
    assert failed(results) == []
    skipped = {result.id: result.reason for result in results if result.status == "skip"}
    unwritten = {point.id: "write" for point in HOST_POINTS if point.when == "--write"}
    assert skipped == unwritten | {"scope.forbidden": "other"}
    assert SECRET not in json.dumps([result.as_object() for result in results])


@pytest.mark.requirement("R9")
async def test_assert_conforms_returns_the_results_or_names_the_points_that_failed() -> None:
    with broken_host() as (url, _):
        assert failed(await assert_conforms(HttpHost(url))) == []
        with pytest.raises(AssertionError, match=r"breaks the contract.*\nspeed\.list: a role_list takes"):
            await assert_conforms(HttpHost(url), HostCheckOptions(slow=0))


@pytest.mark.requirement("R7")
async def test_no_log_line_of_a_check_holds_a_role(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    with http_host(tmp_path / "roles.db") as (url, _):
        results = await check_host(HttpHost(url), WRITE)
    assert failed(results) == []
    assert_no_role_leak([caplog, results], "Answer in one sentence.")  # each role that the check puts begins so


async def test_a_role_that_is_set_is_not_written_over() -> None:
    with broken_host() as (url, host):
        await host.store.put(Tier.WORKSPACE, "novel", Role("house", SECRET))
        results = await check_host(HttpHost(url), HostCheckOptions(write=True, scopes={Tier.WORKSPACE: "novel"}))
        assert [(key, role.content) for key, role in host.store.kept.items()] == [((Tier.WORKSPACE, "novel"), SECRET)]
    assert failed(results) == ["write.scope"]
    assert {result.status for result in results if result.id.startswith(("put.", "delete."))} == {"skip"}


async def test_a_check_that_is_cancelled_clears_what_it_wrote() -> None:
    written = asyncio.Event()

    def tell(result: Result) -> None:
        if result.id == "put.tiers":
            written.set()

    with broken_host() as (url, host):
        check = asyncio.create_task(check_host(HttpHost(url), WRITE, tell=tell))
        await asyncio.wait_for(written.wait(), 30)
        assert host.store.kept
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
        assert host.store.kept == {}


async def test_results_are_reported_one_by_one() -> None:
    heard: list[Result] = []
    with broken_host() as (url, _):
        results = await check_host(HttpHost(url), tell=heard.append)
    assert heard == results
    assert [result.id for result in results] == [point.id for point in HOST_POINTS if point.when != "stdio"]
    assert set(results[0].as_object()) == {"id", "title", "status", "problem", "remedy", "reason", "detail", "ms"}


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="`timeout` must be seconds above 0, got 0"):
        HostCheckOptions(timeout=0)
    with pytest.raises(InvalidArgument, match="`timeout` must be seconds above 0, got inf"):
        HostCheckOptions(timeout=float("inf"))
    with pytest.raises(InvalidArgument, match="never kept"):
        HostCheckOptions(scopes={Tier.CALL: "x"})
    with pytest.raises(InvalidArgument, match="both"):
        HostCheckOptions(scopes={Tier.ACCOUNT: "x"}, foreign={Tier.ACCOUNT: "x"})


async def test_a_packed_answer_is_not_read_and_points_that_saw_no_answer_do_not_pass() -> None:
    async with raw_host("sound", "Content-Encoding: gzip") as raw:
        results = await check_host(HttpHost(raw.url))
    assert "is not an MCP message" in {result.id: result.problem for result in results}["list.answer"]
    skipped = {result.id: result.problem for result in results if result.status == "skip"}
    assert skipped.keys() >= {"answer.contract", "answer.fields", "answer.text", "error.code", "error.values"}
    assert skipped["answer.contract"] == "no call was answered"


def rows(store: Path) -> list[tuple[str, str, str]]:
    connection = sqlite3.connect(store)
    try:
        return connection.execute("SELECT tier, scope_id, content FROM wa_role ORDER BY 1, 2").fetchall()
    finally:
        connection.close()
