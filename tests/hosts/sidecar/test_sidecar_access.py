"""Who reaches which workspaces, accounts and threads. Errors do not tell whether what is out of reach exists."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.agents import answering
from support.sidecar_served import agents, caller_of, served, tokens
from worldagent.core.errors import InvalidArgument
from worldagent.hosts.serving import Tokens
from worldagent.hosts.sidecar import EVERYTHING, Grant, Sidecar, read_token_file

KNOWN = tokens(
    operator=EVERYTHING,
    ana=Grant(("novel",), ("ana",), ("ana-*", "shared")),
    ben=Grant(("novel", "shop"), ("ben",)),
)


@pytest_asyncio.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    """The address of a sidecar that takes the tokens."""
    async with served(Sidecar(agents(tmp_path, lm=answering()), tokens=KNOWN)) as address:
        yield address


def about(error: dict[str, Any]) -> tuple[str, str, str]:
    return error["code"], error["problem"], error["remedy"]


async def test_errors_do_not_tell_whether_what_a_token_cannot_reach_exists(url: str) -> None:
    async with caller_of(url, "auto", "operator") as operator, caller_of(url, "auto", "ana") as ana:
        for workspace, thread in (("shop", "t1"), ("novel", "ben-1"), ("novel", "ana-1")):
            await operator("converse", workspace=workspace, thread=thread, account="ben", text="Well?")
        cases: list[tuple[dict[str, str], dict[str, str]]] = [
            ({"workspace": "shop", "thread": "ana-1"}, {"workspace": "nowhere", "thread": "ana-1"}),
            ({"account": "ben", "thread": "ana-1"}, {"account": "nobody", "thread": "ana-1"}),
            ({"thread": "ben-1"}, {"thread": "ben-2"}),
        ]
        for there, missing in cases:
            for tool, more in (("converse", {"text": "Well?"}), ("history", {}), ("cancel", {}), ("pauses", {})):
                told = [about(await ana.refused(tool, **where, **more)) for where in (there, missing)]
                assert told[0] == told[1]
                assert told[0][0] == "forbidden"


async def test_a_turn_out_of_reach_is_refused_like_one_that_does_not_exist(url: str) -> None:
    async with caller_of(url, "auto", "operator") as operator, caller_of(url, "auto", "ana") as ana:
        told: list[Any] = []
        for workspace, thread in (("novel", "ben-1"), ("shop", "shared")):
            done = await operator("converse", workspace=workspace, thread=thread, text="Well?", detach=True)
            told.append(about(await ana.refused("events", turn_id=done["turn"]["id"])))
        told.append(about(await ana.refused("events", turn_id="turn_nowhere")))
        assert told[0] == told[1] == told[2]
        assert told[0][0] == "unknown_turn"
        done = await operator("converse", workspace="novel", thread="shared", text="Well?", detach=True)
        assert (await ana("events", follow=False, turn_id=done["turn"]["id"]))["events"]


async def test_a_workspace_or_account_can_be_omitted_if_the_token_has_one(url: str) -> None:
    async with caller_of(url, "auto", "ana") as ana, caller_of(url, "auto", "ben") as ben:
        await ana("converse", thread="ana-1", text="Well?")
        [state] = (await ana("threads"))["threads"]
        assert (state["thread"], state["account"]) == ("ana-1", "ana")
        unnamed = await ben.refused("converse", thread="t1", text="Well?")
        assert (unnamed["code"], unnamed["remedy"]) == ("invalid_argument", "name one in `workspace`")
        await ben("converse", workspace="shop", thread="t1", text="Well?")


async def test_threads_and_forks_stay_within_what_a_token_reaches(url: str) -> None:
    async with caller_of(url, "auto", "ben") as ben, caller_of(url, "auto", "ana") as ana:
        await ben("converse", workspace="novel", thread="ben-1", text="Well?")
        await ana("converse", thread="ana-1", text="Well?")
        await ana("converse", thread="shared", text="Well?")
        assert {one["thread"] for one in (await ana("threads"))["threads"]} == {"ana-1", "shared"}
        assert [one["thread"] for one in (await ana("threads", limit=1))["threads"]] == ["shared"]
        assert (await ana.refused("fork", thread="ana-1", to="ben-2"))["code"] == "forbidden"
        unnamed = await ana.refused("fork", thread="shared")
        assert (unnamed["code"], unnamed["remedy"]) == (
            "forbidden",
            "set `to` to a name that the token reaches",
        )
        assert (await ana("fork", thread="ana-1"))["thread"].startswith("ana-1.")


async def test_the_same_key_of_another_account_is_another_start(url: str) -> None:
    async with caller_of(url, "auto", "ana") as ana, caller_of(url, "auto", "ben") as ben:
        mine = await ana("converse", thread="shared", text="Well?", key="k")
        again = await ana("converse", thread="shared", text="Well?", key="k")
        assert again["turn"]["id"] == mine["turn"]["id"]
        error = await ben.refused("converse", workspace="novel", thread="shared", text="Well?", key="k")
    assert error["code"] == "key_reused"
    assert "turn_id" not in error


def test_a_token_file_grants_workspaces_accounts_and_threads(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(
        """
        [[token]]
        token = "of-ana"
        workspaces = ["novel"]
        accounts = ["ana"]
        threads = ["ana-*"]

        [[token]]
        token = "of-everybody"
        workspaces = ["*"]
        operator = true
        """
    )
    found = read_token_file(file)
    assert list(found.grants) == [Grant(("novel",), ("ana",), ("ana-*",)), Grant(("*",), operator=True)]
    plain = tmp_path / "token"
    plain.write_text("only-one\n")
    assert list(read_token_file(plain).grants) == [EVERYTHING]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ('workspaces = ["s3cret", 3]', "must have a list of ids as workspaces"),
        ('accounts = ["s3cret"]', "must name at least one workspace"),
        ('workspaces = ["s3cret"]\noperator = 1', "must have true or false as operator"),
        ('workspaces = ["s3cret"]\nscopes = ["s3cret"]', "must have only the keys token, workspaces"),
    ],
)
def test_an_invalid_token_file_is_refused_without_its_text(tmp_path: Path, entry: str, told: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[[token]]\ntoken = "t0ken"\n{entry}\n')
    with pytest.raises(InvalidArgument) as raised:
        read_token_file(file)
    assert f"[[token]] number 1 {told}" in raised.value.problem
    assert not any(hidden in str(raised.value) for hidden in ("s3cret", "t0ken"))


def test_a_grant_takes_lists_and_tokens_show_nothing_of_themselves() -> None:
    with pytest.raises(InvalidArgument):
        Grant("novel", ("ana",))
    assert isinstance(KNOWN, Tokens)
    assert "operator" not in repr(KNOWN)
