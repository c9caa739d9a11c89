"""What an agent uses of an MCP server: values only. `_source` reaches it and makes its tools Functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.events import Risk
from ...harness.running import risks
from ..hosts import HttpHost, StdioHost

RESULT_LIMIT: Final = 1024 * 1024
"""Characters of one result, as JSON, where nothing else is set."""

_LONGEST: Final = 64
_PREFIX = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]{0,31})?")


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server whose tools an agent can call.

    Attributes:
        host: Where it is, or which program it is.
        prefix: What the names of its Functions begin with; None is the server's own name and `_`.
        allow: Globs over its own names of its tools; what fits none is not there.
        risk: What its tools do to the world, by globs over its own names, the first that fits. A tool that none fits
            counts as `write` and `network`.
        trust_annotations: Whether what the server says of a tool's risk counts, where `risk` says nothing.
        elicitation: Whether it may ask a person something in the middle of a call.
        approval: Whether a person is asked for each call, whatever the policy approves.
        offered: Whether the conversation can call its tools; workers can call what their `tools` name all the same.
        timeout: Seconds that one call may take, without the time in which a person is asked.
        result_limit: Characters of one result as JSON; a longer one is refused.

    Raises:
        InvalidArgument: An argument does not fit; the text names it.
    """

    host: HttpHost | StdioHost
    prefix: str | None = field(default=None, kw_only=True)
    allow: Sequence[str] = field(default=("*",), kw_only=True)
    risk: Mapping[str, Risk | Iterable[Risk]] = field(default_factory=dict, kw_only=True)
    trust_annotations: bool = field(default=False, kw_only=True)
    elicitation: bool = field(default=False, kw_only=True)
    approval: bool = field(default=False, kw_only=True)
    offered: bool = field(default=True, kw_only=True)
    timeout: float = field(default=60.0, kw_only=True)
    result_limit: int = field(default=RESULT_LIMIT, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.host, HttpHost | StdioHost):
            raise InvalidArgument("host is no HttpHost or StdioHost", remedy="say where the MCP server is")
        if self.prefix is not None and not (isinstance(self.prefix, str) and _PREFIX.fullmatch(self.prefix)):
            raise InvalidArgument(
                f"prefix {str(self.prefix)[:64]!r} cannot begin a name",
                remedy="use up to 32 letters, digits, '_', '.' or '-', no digit first",
            )
        allow = () if isinstance(self.allow, str) else tuple(self.allow)
        if isinstance(self.allow, str) or not all(isinstance(glob, str) and glob for glob in allow):
            raise InvalidArgument("allow is no list of globs", remedy="give one such as ['read_*']")
        if isinstance(self.timeout, bool) or not 0 < self.timeout < float("inf"):
            raise InvalidArgument(f"timeout {self.timeout!r} is no time limit", remedy="give seconds, above 0")
        if isinstance(self.result_limit, bool) or self.result_limit < 1:
            raise InvalidArgument(
                f"result_limit {self.result_limit!r} is no number of characters", remedy="give 1 or more"
            )
        object.__setattr__(self, "allow", allow)
        object.__setattr__(self, "risk", {glob: _risks(glob, given) for glob, given in dict(self.risk).items()})

    def prefix_as(self, name: str) -> str:
        """What the names of its Functions begin with where it is called `name`."""
        return name_of(f"{name}_", "") if self.prefix is None else self.prefix

    def allows(self, tool: str) -> bool:
        """Whether a tool of this name may be there."""
        return any(fnmatchcase(tool, glob) for glob in self.allow)

    def risk_of(self, tool: str) -> tuple[Risk, ...] | None:
        """The risk that is set for a tool of this name, or None."""
        return next((risks(tool, given) for glob, given in self.risk.items() if fnmatchcase(tool, glob)), None)


def name_of(prefix: str, tool: str) -> str:
    """What the Function of a tool is called; what no name may hold becomes `_`."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{prefix}{tool}")[:_LONGEST]
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"[:_LONGEST]


def _risks(glob: str, given: object) -> tuple[Risk, ...]:
    problem = ""
    try:
        return risks(glob, given)
    except FunctionInvalid as error:
        problem, remedy = error.problem, error.remedy
    raise InvalidArgument(problem, remedy=remedy)


__all__ = ["RESULT_LIMIT", "McpServer", "name_of"]
