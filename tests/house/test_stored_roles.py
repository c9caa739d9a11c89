"""Every test that puts or reads stored roles runs on the embedded store, over stdio and over HTTP (R9)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# What these folders test is a store or a host of their own choice.
APART = ("docs", "hosts", "house", "mcp_client", "support", "testing")
# Tests of one store in particular, and why.
ONE_STORE = {
    "test_a_cache_time_of_zero_asks_every_time": "counts what a store is asked",
    "test_a_stored_role_is_kept_for_its_time_and_no_longer": "counts what a store is asked",
    "test_no_role_of_a_call_or_a_thread_reaches_the_wire": "the embedded store has no wire",
    "test_roles_of_calls_and_threads_do_not_reach_the_wire": "the embedded store has no wire",
    "test_no_role_travels_to_a_server": "what a server of tools is sent is the same with any store",
    "test_when_an_agent_is_closed_nobody_holds_a_role_of_its_host": "its cases name their stores",
    "test_the_role_of_a_kept_task_is_compared_as_before": "the kept home has its embedded store",
    "test_a_role_store_that_is_down_names_its_tiers": "a store of an embedder's own",
    "test_the_host_that_offers_channel_roles_goes_before_the_embedders_source": "a store of an embedder's own",
    "test_roles_refuse_settings_that_mean_nothing": "the refusal of what is no store",
    "test_stored_roles_outlive_the_process_in_a_file_of_their_own": "the file of the embedded store",
    "test_a_put_elsewhere_is_seen_by_the_embedded_store_of_another_agent": "two agents on the embedded store's file",
    "test_a_conversation_of_a_kept_home_goes_on": "the files of a home that is kept",
    "test_a_database_that_is_none_is_named_and_both_are_left_as_they_were": "the file of the embedded store",
    "test_a_file_of_roles_whose_table_is_another_is_named_with_the_remedy": "the file of the embedded store",
    "test_a_stored_role_that_is_no_text_is_told_without_its_words": "the file of the embedded store",
    "test_a_role_that_was_stored_under_a_name_that_no_longer_fits_is_still_used": "the file of the embedded store",
    "test_a_database_that_is_taken_away_fails_the_next_turn_before_any_model_call": "the file of the embedded store",
    "test_a_newer_schema_of_any_part_is_refused_naming_both_versions_and_changes_nothing": "the databases of a home",
    "test_a_checkpoint_that_cannot_be_read_is_named_and_other_threads_go_on": "the databases of a home",
    "test_the_role_host_of_the_settings_is_used_where_roles_name_none": "which store a setting chooses",
    "test_role_of_a_turn_noted_under_an_unstretched_key_is_compared": "the files of a home that is kept",
    "test_a_role_is_nowhere_after_a_thread": "what summaries and compaction keep; the matrix has the stores",
}
_CALLS = {"put", "get", "list", "delete"}
# Functions of `support` that do it for a test; the cases of the leak suite name their store themselves.
_HELPERS = {"SqliteRoleStore", "put_role"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def touches(node: ast.AST) -> bool:
    """Whether something below `node` puts or reads stored roles, or chooses their store."""
    for found in ast.walk(node):
        match found:
            case ast.Attribute(value=ast.Attribute(attr="roles") | ast.Name(id="roles"), attr=attr) if attr in _CALLS:
                return True
            case ast.Name(id=name) if name in _HELPERS:
                return True
            case ast.Call(func=ast.Name(id="Roles"), keywords=keywords) if any(k.arg == "host" for k in keywords):
                return True
            case _:
                pass
    return False


def on_all(function: Function) -> bool:
    """Whether a decorator runs it on every store."""
    decorators = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
    return "on_every_store" in decorators or "KINDS" in decorators


def offenders(source: str) -> Iterator[str]:
    """Yield the tests of a module that touch stored roles, themselves or by a helper beside them, on one store only."""
    functions = [node for node in ast.parse(source).body if isinstance(node, Function)]
    touching = {function.name for function in functions if touches(function)}
    while True:
        more = {f.name for f in functions if touching & {n.id for n in ast.walk(f) if isinstance(n, ast.Name)}}
        if more <= touching:
            break
        touching |= more
    for function in functions:
        if function.name in touching and function.name.startswith("test_") and not on_all(function):
            yield function.name


def test_every_test_of_stored_roles_runs_on_every_store() -> None:
    found: set[str] = set()
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.relative_to(TESTS).parts[0] not in APART:
            found.update(offenders(path.read_text(encoding="utf-8")))
    assert sorted(found - set(ONE_STORE)) == [], "use support.stores, or say in ONE_STORE why one store is enough"
    assert sorted(set(ONE_STORE) - found) == [], "these need no exception any more"


@pytest.mark.parametrize(
    ("body", "noticed"),
    [
        ("async def test_it(): await agent.roles.put(tier, role)", True),
        ("async def test_it(): await roles.list()", True),
        ("async def test_it(): Roles(host=mine)", True),
        ("async def test_it(): await SqliteRoleStore.open(path)", True),
        ("async def fill(): await agent.roles.get(tier)\nasync def test_it(): await fill()", True),
        ("async def fill(): await agent.roles.get(tier)\nasync def more(): fill()\ndef test_it(): run(more)", True),
        ("@on_every_store\nasync def test_it(kind): await agent.roles.put(tier, role)", False),
        ("@pytest.mark.parametrize('kind', ['own', *KINDS])\nasync def test_it(kind): agent.roles.put(x)", False),
        ("async def test_it(): Roles(sources={})", False),
    ],
)
def test_a_test_of_one_store_is_noticed(body: str, noticed: bool) -> None:
    assert list(offenders(body)) == (["test_it"] if noticed else [])
