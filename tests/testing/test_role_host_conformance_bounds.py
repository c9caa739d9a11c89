"""The check of a role host that is out to keep it busy: every point comes to an end, and says what it did not see."""

from __future__ import annotations

import asyncio

import pytest

from support.broken_hosts import broken_host
from support.raw_hosts import FRIEND, raw_host
from worldagent.mcp_client import HttpHost
from worldagent.testing.role_host_conformance import HostCheckOptions, Result, check_host

ENDLESS = "the schema of role_get does not come to an end"
TOLD = {
    "has a schema that branches without end": ENDLESS,
    "has a schema with parts of another revision": ENDLESS,
    "has a schema that refers to itself": ENDLESS,
    "has a schema without end": "the schema of role_get has more than 1,000 parts or 64 KiB",
    "has a pattern that takes for ever": None,
}
WHOLE = ("answer.contract", "answer.fields", "answer.text", "error.code", "error.values")


def of(results: list[Result], *points: str) -> dict[str, str]:
    return {result.id: result.status for result in results if result.id in points}


def failures(results: list[Result]) -> dict[str, str]:
    return {result.id: result.problem for result in results if result.status == "fail"}


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("fault", TOLD)
async def test_a_schema_that_takes_for_ever_fails_its_points_and_the_check_goes_on(fault: str) -> None:
    problem = TOLD[fault]
    async with broken_host(fault) as (url, _), asyncio.timeout(60):
        results = await check_host(HttpHost(url))
    assert failures(results) == ({} if problem is None else dict.fromkeys(("tools.arguments", "tools.tiers"), problem))
    assert all(result.remedy for result in results if result.status == "fail")


@pytest.mark.requirement("R9")
async def test_an_http_head_that_drips_has_the_time_of_one_call() -> None:
    async with raw_host("drips its head to strangers") as raw, asyncio.timeout(60):
        results = await check_host(HttpHost(raw.url, FRIEND), HostCheckOptions(timeout=1))
    assert failures(results)["http.token"] == "it did not answer within 1 s"


@pytest.mark.requirement("R9")
async def test_a_packed_answer_is_not_read_and_points_that_saw_no_answer_do_not_pass() -> None:
    async with raw_host("sound", "Content-Encoding: gzip") as raw:
        results = await check_host(HttpHost(raw.url))
    assert "compressed" in failures(results)["list.answer"]
    assert of(results, *WHOLE) == dict.fromkeys(WHOLE, "skip")
    assert "no call was answered" in [result.problem for result in results if result.id == "answer.contract"]
