"""A role host over stdio in plain Python: it starts at once, speaks revision 2025-11-25, and can break in named ways.

As a program: `python plain_hosts.py HOW`. It is for faults of a process; those of answers are in `broken_hosts`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TIERS = ["workspace", "account", "channel"]
LONGEST = 32 * 1024
SLEEPER = ["sleep", "600"]

_TEXT = {"type": "string"}
_TIER = {"type": "string", "enum": TIERS}
_SCOPE_IDS = {"type": "object", "propertyNames": {"enum": TIERS}, "additionalProperties": _TEXT}
_TOOLS: dict[str, dict[str, Any]] = {
    "role_list": {"scope_ids": _SCOPE_IDS},
    "role_get": {"tier": _TIER, "scope_id": _TEXT},
    "role_put": {"tier": _TIER, "scope_id": _TEXT, "name": _TEXT, "content": _TEXT},
    "role_delete": {"tier": _TIER, "scope_id": _TEXT},
}


def plain_host(how: str = "") -> list[str]:
    """The argv of such a host."""
    return [sys.executable, "-S", "-E", str(Path(__file__)), how]


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and bool(value.strip())


def _fits(tool: str, given: dict[str, Any]) -> bool:
    if given.keys() != _TOOLS[tool].keys():
        return False
    if tool == "role_list":
        scopes = given["scope_ids"]
        return isinstance(scopes, dict) and all(tier in TIERS and _is_label(scope) for tier, scope in scopes.items())
    content = given.get("content", "some")
    labels = (given["scope_id"], given.get("name", "some"))
    return given["tier"] in TIERS and all(map(_is_label, labels)) and isinstance(content, str) and bool(content.strip())


class PlainHost:
    """The host, with its roles in memory."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.kept: dict[tuple[str, str], dict[str, str]] = {}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The result of a request, or its error."""
        params = asked.get("params", {})
        match asked["method"]:
            case "initialize":
                server = {"name": "plain", "version": "1"}
                found: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": server}
            case "tools/list":
                found = {"tools": [{"name": name, "inputSchema": self.schema(name)} for name in _TOOLS]}
            case "tools/call" if params["name"] in _TOOLS:
                self.break_(params["name"])
                content = self.call(params["name"], params.get("arguments", {}))
                said = [{"type": "text", "text": "done"}]
                found = {"content": said, "structuredContent": content, "isError": "code" in content}
            case _:
                return {"error": {"code": -32601, "message": "unknown"}}
        return {"result": found}

    def call(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        """The structured content of a tool's answer."""
        if not _fits(tool, given):
            return {"contract": 1, "code": "invalid"}
        if tool == "role_list":
            found = [self.kept[place] for place in given["scope_ids"].items() if place in self.kept]
            return {"contract": 1, "roles": found}
        place = (given["tier"], given["scope_id"])
        if tool == "role_put":
            if len(given["content"].encode()) > LONGEST:
                return {"contract": 1, "code": "too_long"}
            self.kept[place] = {name: given[name] for name in ("name", "content", "tier")}
        if place not in self.kept:
            return {"contract": 1, "code": "not_found"}
        return {"contract": 1, "role": self.kept.pop(place) if tool == "role_delete" else self.kept[place]}

    def schema(self, tool: str) -> dict[str, Any]:
        """The input schema of a tool."""
        properties = _TOOLS[tool]
        if self.how == "copies into headers" and "content" in properties:
            properties = properties | {"content": _TEXT | {"x-mcp-header": "Content"}}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    def break_(self, tool: str) -> None:
        """Do what is wrong before a call is answered."""
        match self.how:
            case "dies" if tool == "role_list":
                os._exit(3)
            case "writes garbage":
                os.write(1, b"loading roles...\n")
            case "logs roles" if self.kept:
                told = {"level": "info", "data": list(self.kept.values())}
                notice = {"jsonrpc": "2.0", "method": "notifications/message", "params": told}
                os.write(1, (json.dumps(notice) + "\n").encode())
            case _:
                pass

    def serve(self) -> None:
        """Answer what comes, until the input ends."""
        if self.how == "leaves a process":
            subprocess.Popen(SLEEPER, stdin=subprocess.DEVNULL)
        for line in sys.stdin.buffer:
            asked = json.loads(line)
            if "id" in asked:
                answer = {"jsonrpc": "2.0", "id": asked["id"], **self.answer(asked)}
                os.write(1, (json.dumps(answer) + "\n").encode())
            elif self.how == "dies of a cancelled call" and asked["method"] == "notifications/cancelled":
                os._exit(3)
        if self.how == "does not end":
            time.sleep(600)


if __name__ == "__main__":
    PlainHost(sys.argv[1]).serve()
