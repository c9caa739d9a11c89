"""Operations of capabilities that others wrote, well or badly: what hosts make of them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.capability_hosts import site
from support.processes import clean_environment
from worldagent.agent import WorldAgent
from worldagent.core.errors import FunctionInvalid
from worldagent.hosts.service.arguments import WorkspaceArguments
from worldagent.hosts.service.call import Call
from worldagent.hosts.service.operation import operation
from worldagent.hosts.service.records import Answer

FINE = """
class Arguments(WorkspaceArguments):
    thread: str | None = None
class Last(Answer):
    thread: str | None
@operation("Last", "The thread.")
async def fine_last(call: Call[Arguments], agent: WorldAgent) -> Last: return Last(thread=call.given.thread)
@operation("Wrong", "Returns another thing.")
async def fine_wrong(call: Call[Arguments], agent: WorldAgent) -> Last: return {"a": "secret"}
@operation("Raises", "Raises.")
async def fine_raises(call: Call[Arguments], agent: WorldAgent) -> Last: raise KeyError("a secret")
@operation("Owner", "Is for owners.", who="owner")
async def fine_owner(call: Call[Arguments], agent: WorldAgent) -> Last: return Last(thread=None)
class It(Capability):
    name = "fine"
    @classmethod
    def operations(cls): return fine_last, fine_wrong, fine_raises, fine_owner
"""
FORBIDDEN = "the token does not reach this thread"
HOSTILE = {
    "raises": ("@classmethod\ndef operations(cls): raise KeyError('a secret')", "it raised KeyError"),
    "none": ("@classmethod\ndef operations(cls): return None", "it raised TypeError"),
    "method": ("def operations(self): return []", "it raised TypeError"),
    "number": ("@classmethod\ndef operations(cls): return [3]", "`operations()` returned 'int' among its operations"),
    "text": ("It = 'a text'", ""),
    "nothing": ("It = None", ""),
    "exits": ("raise SystemExit(3)\nIt = 1", ""),
    "taken": (
        """
        @classmethod
        def operations(cls):
            from worldagent.hosts.service.threads import cancel
            return [cancel]
        """,
        "there are two operations 'cancel'",
    ),
    "bare": (
        """
        @classmethod
        def operations(cls):
            @operation("T", "D")
            async def bare_do(call, agent): ...
            return [bare_do]
        """,
        "bare_do cannot be an operation: `call` is not annotated",
    ),
    "pageless": ("page = Path('/nowhere.js')", "its page is not a file"),
}


def installed(tmp_path: Path) -> dict[str, str]:
    folder = site(tmp_path / "site", {"fine": FINE, **{name: code for name, (code, _) in HOSTILE.items()}})
    env = clean_environment()
    return env | {"PYTHONPATH": os.pathsep.join([env["PYTHONPATH"], str(folder)])}


@pytest.mark.requirement("H10")
@pytest.mark.timeout(240)
def test_a_package_that_is_only_installed_stops_no_host_and_reads_no_foreign_thread(tmp_path: Path) -> None:
    words = (sys.executable, "-P", "-m", "support.capability_hosts", str(tmp_path / "home"))
    done = subprocess.run(words, env=installed(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, (_, why) in HOSTILE.items():
        assert f"hosts leave out the capability {name!r}: {why}" in done.stderr
    assert "secret" not in done.stderr
    found = json.loads(done.stdout)
    assert {"fine_last", "converse"} <= {*found["names"]}
    assert not {"bare_do"} & {*found["names"]}
    answers = found["answers"]
    assert answers['fine_last {"thread": "ana-1"}']["thread"] == "ana-1"
    assert answers['fine_last {"thread": null}']["thread"] is None
    assert answers['fine_last {"thread": "ben-1"}']["error"]["problem"] == FORBIDDEN
    for each in ("tool fine_wrong", "fine_wrong {}"):
        error = answers[each]["error"]
        assert error["code"] == "capability_failed"
        assert "'fine_wrong' of the capability 'fine' returned dict and not Last" in error["problem"]
    for each in ("tool fine_raises", "fine_raises {}"):
        assert "'fine_raises' of the capability 'fine' raised KeyError" in answers[each]["error"]["problem"]
    assert answers["tool fine_owner"]["thread"] is None, "an agent without a society has operators"
    assert "has no society" in answers["fine_owner {}"]["error"]["problem"]
    assert found["seen"] == ["KeyError"]


class Arguments(WorkspaceArguments):
    words: str = ""


async def without_annotations(call: Any, agent: Any) -> Any: ...
async def of_a_plain_model(call: Call[BaseModel], agent: WorldAgent) -> Answer: ...  # type: ignore[type-var, empty-body]
async def without_an_answer(call: Call[Arguments], agent: WorldAgent) -> str: ...  # type: ignore[empty-body]
async def of_nothing_known(call: "Call[Unknown]", agent: WorldAgent) -> Answer: ...  # type: ignore[name-defined, empty-body]  # noqa: F821
def not_async(call: Call[Arguments], agent: WorldAgent) -> Answer: ...  # type: ignore[empty-body]


@pytest.mark.requirement("H10")
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (without_annotations, r"without_annotations cannot be .* `call` is not annotated"),
        (of_a_plain_model, "with a model of WorkspaceArguments"),
        (without_an_answer, "it is not annotated to return a model of Answer"),
        (of_nothing_known, "its annotations raise NameError"),
        (not_async, "it is not a coroutine function"),
    ],
)
def test_what_cannot_be_an_operation_is_refused_by_its_name(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(FunctionInvalid, match=why):
        operation("T", "D")(function)
