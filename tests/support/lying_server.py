"""An MCP server that says what it likes, over stdio. It imports little, so that it starts at once.

`python lying_server.py SAYS LOG`: SAYS is a file of JSON with what it says, and LOG receives each call as a line.

* `tools` and `resources`: its lists.
* `answers`: the result of a call by the name of the tool, or `{"error": ...}`.
* `before`: messages that it sends before it answers a call, by the name of the tool.
* `then`: its tools after a call, by the name of the tool. It announces them.
* `asks`: what it asks a person before it answers a call, by the name of the tool.
* `contents`: those of every resource.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}, "resources": {}, "logging": {}},
    "serverInfo": {"name": "liar", "version": "1"},
}


def command(home: Path, says: Mapping[str, Any]) -> Sequence[str]:
    """The argv of a server that says this, with its files in a folder."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "says.json").write_text(json.dumps(says))
    return [sys.executable, "-S", "-E", __file__, str(home / "says.json"), str(home / "calls.log")]


def calls(home: Path) -> list[dict[str, Any]]:
    """The calls that such a server got: each with `name` and `arguments`."""
    log = home / "calls.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _call(says: dict[str, Any], id_: Any, params: Mapping[str, Any], log: Path) -> None:
    with log.open("a") as file:
        file.write(json.dumps({"name": params["name"], "arguments": params.get("arguments", {})}) + "\n")
    token = params.get("_meta", {}).get("progressToken")
    for message in says.get("before", {}).get(params["name"], ()):
        about = {"progressToken": token} if "progress" in message["method"] else {}
        _send(**{**message, "params": {**message["params"], **about}})
    if params["name"] in says.get("then", {}):
        says["tools"] = says["then"][params["name"]]
        _send(method="notifications/tools/list_changed")
    answer = says["answers"].get(params["name"], {"content": []})
    answer = answer if "error" in answer else {"result": answer}
    if params["name"] in says.get("asks", {}):
        says["waiting"] = {"id": id_, **answer}
        _send(id="asked", method="elicitation/create", params=says["asks"][params["name"]])
    else:
        _send(id=id_, **answer)


def main() -> None:
    says, log = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("id") == "asked":
            _send(**says.pop("waiting"))
        if "id" not in asked or "method" not in asked:
            continue
        if asked["method"] == "tools/call":
            _call(says, asked["id"], asked["params"], log)
            continue
        result = {
            "initialize": _HELLO,
            "ping": {},
            "tools/list": {"tools": says["tools"]},
            "resources/list": {"resources": says.get("resources", [])},
            "resources/read": {"contents": says.get("contents", [])},
        }.get(asked["method"])
        unknown = {"error": {"code": -32601, "message": "no"}}
        _send(id=asked["id"], **(unknown if result is None else {"result": result}))


if __name__ == "__main__":
    main()
