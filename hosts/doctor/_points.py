"""The points of both checks, in the order in which they are looked at. `docs/` shows these tables, and a test says so.

An id is `subject.aspect`. It is stable: it is renamed or given another meaning only in a release that says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

When = Literal["always", "http", "stdio", "--write", "--foreign-scope", "--model"]


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that is looked at.

    Attributes:
        id: Its name for programs.
        title: What holds where it passes; at most 46 characters, so that a line fits a terminal.
        needs: The points without which it cannot be looked at.
        tools: The tools of the contract that it calls.
        when: For which hosts and with which option it is looked at.
    """

    id: str
    title: str
    needs: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    when: When = "always"


_LIST, _GET, _PUT, _DELETE = "role_list", "role_get", "role_put", "role_delete"
_MCP: Final = ("protocol.revision",)
_READ: Final = ("list.answer",)
_SET: Final = ("put.answer",)
_SET_READ: Final = (*_SET, *_READ)
_CYCLE: Final = (_GET, _PUT, _DELETE)
_ALL: Final = (_LIST, *_CYCLE)

HOST_POINTS: Final = (
    Point("connect.time", "it can be reached and answers in time"),
    Point("protocol.revision", "it speaks a current revision of MCP", ("connect.time",)),
    Point("tools.present", "it has the four tools", _MCP),
    Point("tools.arguments", "their schemas take the contract's arguments", ("protocol.revision",)),
    Point("tools.tiers", "they offer the same tiers", ("protocol.revision",)),
    Point("protocol.same", "every revision that it speaks answers alike", _MCP, (_LIST,)),
    Point("list.answer", "role_list answers with roles", _MCP, (_LIST,)),
    Point("list.empty", "role_list of nothing is empty", _READ, (_LIST,)),
    Point("get.not_found", "role_get of no role is not_found", _MCP, (_GET,)),
    Point("error.tier", "a tier that it does not keep is invalid", _MCP, (_LIST, _GET)),
    Point("error.arguments", "missing, extra or wrong arguments are invalid", _MCP, (_LIST, _GET)),
    Point("error.scope", "an id that cannot be one is invalid", _MCP, (_LIST, _GET)),
    Point("error.tool", "an unknown tool is an error of the protocol", _MCP),
    Point("write.scope", "the scopes to write to are free", _MCP, _CYCLE, "--write"),
    Point("put.answer", "role_put answers with the role that it set", ("write.scope",), _ALL, "--write"),
    Point("put.text", "a text comes back byte for byte", _SET_READ, _ALL, "--write"),
    Point("put.replace", "putting a role replaces the one before", _SET_READ, _ALL, "--write"),
    Point("put.long", "it takes 32 KiB", _SET, _ALL, "--write"),
    Point("put.too_long", "a text that is too long is too_long", _SET, _ALL, "--write"),
    Point("put.blank", "a blank text or an unfit name is invalid", _SET, _ALL, "--write"),
    Point("put.tiers", "it keeps a role of each tier that it offers", _SET, _ALL, "--write"),
    Point("list.records", "a role is name, content and tier", _READ, (_LIST,)),
    Point("list.tiers", "one role for a tier, and only for tiers asked", _READ, (_LIST,)),
    Point("get.agrees", "role_get and role_list agree", _READ, (_LIST, _GET)),
    Point("scope.apart", "a role is seen in its own scope only", _READ, (_LIST,)),
    Point("scope.forbidden", "a foreign scope is forbidden", _READ, (_LIST, _GET), "--foreign-scope"),
    Point("delete.answer", "role_delete gives the role and clears it", _SET_READ, _ALL, "--write"),
    Point("delete.again", "role_delete of no role is not_found", _SET, _ALL, "--write"),
    Point("change.notice", "it tells of changes, if it offers to", _SET, _ALL, "--write"),
    Point("speed.list", "role_list is fast", _READ, (_LIST,)),
    Point("load.many", "16 calls at once are answered right", _READ, (_LIST,)),
    Point("load.cancelled", "a cancelled call disturbs no other", _READ, (_LIST,)),
    Point("write.cleanup", "what was written is cleared", ("write.scope",), (_GET, _DELETE), "--write"),
    Point("answer.contract", "every answer says contract 1", _MCP),
    Point("answer.fields", "answers have the contract's fields only", _MCP),
    Point("answer.text", "texts for people hold no role", _MCP),
    Point("error.code", "errors have a code of the contract", _MCP),
    Point("error.values", "errors repeat no value that was sent", _MCP),
    Point("http.token", "401 without the token, and with another", ("connect.time",), (), "http"),
    Point("http.page", "it refuses a page of another site", ("connect.time",), (), "http"),
    Point("stdio.output", "it writes nothing but MCP to its output", ("connect.time",), (), "stdio"),
    Point("stdio.end", "it ends when its input ends", ("connect.time",), (), "stdio"),
    Point("stdio.children", "it leaves no process behind", ("stdio.end",), (), "stdio"),
)
"""Of a role host; the contract is in `docs/role-host.md`."""

_KEPT: Final = ("settings.values", "home.folder", "database.agent")

INSTALLATION_POINTS: Final = (
    Point("python.version", "Python is new enough"),
    Point("package.versions", "the libraries are there and fit"),
    Point("package.extras", "what the extras bring is there"),
    Point("settings.values", "the settings fit"),
    Point("home.folder", "the home can be used"),
    Point("home.space", "its disk has space"),
    Point("home.private", "nobody else can read the roles"),
    Point("database.agent", "the conversations are sound"),
    Point("database.roles", "the embedded role store is sound"),
    Point("lock.files", "the locks of threads can be used"),
    Point("role.key", "turns that wait were noted with the role key", _KEPT),
    Point("model.configured", "the model can be used", ("settings.values",)),
    Point("model.call", "the model answers", ("model.configured",), (), "--model"),
    Point("role_host.reach", "the role host of the settings answers", ("settings.values",)),
    Point("mcp.servers", "the MCP servers of the settings answer", ("settings.values",)),
    Point("tools.shell", "commands cannot read the keys of the process"),
    Point("sidecar.tokens", "only their owner reads tokens of a sidecar", ("settings.values",)),
)
"""Of an installation."""

__all__ = ["HOST_POINTS", "INSTALLATION_POINTS", "Point", "When"]
