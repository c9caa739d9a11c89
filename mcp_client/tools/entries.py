"""An MCP server in a settings file, in the format of other MCP clients. It becomes an `McpServer`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from ...core.errors import InvalidArgument
from ...core.events import Risk
from ..hosts import HttpHost, StdioHost
from .server import RESULT_LIMIT, McpServer


class McpEntry(BaseModel):
    """One server of the setting `mcp_servers`: a program by `command`, or an address by `url`.

    Attributes:
        type: Required by other clients; `stdio` and `http` are supported.
        command: The program.
        args: Its arguments.
        env: Its environment variables.
        cwd: Its working directory.
        url: The address.
        headers: Headers of every request.
        token: A bearer token, sent with every request.
        connect_timeout: Seconds until calls can be made.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: Literal["stdio", "http", "streamable-http", "streamable_http"] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, SecretStr] = {}
    cwd: Path | None = None
    url: str | None = None
    headers: dict[str, SecretStr] = {}
    token: SecretStr | None = None
    prefix: str | None = None
    allow: tuple[str, ...] = ("*",)
    risk: dict[str, Risk | tuple[Risk, ...]] = {}
    trust_annotations: bool = False
    elicitation: bool = False
    offered: bool = True
    timeout: float = Field(default=60.0, gt=0)
    connect_timeout: float = Field(default=20.0, gt=0)
    result_limit: int = Field(default=RESULT_LIMIT, ge=1)

    def server(self) -> McpServer:
        """The server.

        Raises:
            InvalidArgument: It does not have exactly one of `command` and `url`, or one of its values is invalid.
        """
        return McpServer(
            self._host(),
            prefix=self.prefix,
            allow=self.allow,
            risk=self.risk,
            trust_annotations=self.trust_annotations,
            elicitation=self.elicitation,
            offered=self.offered,
            timeout=self.timeout,
            result_limit=self.result_limit,
        )

    def _host(self) -> HttpHost | StdioHost:
        if self.command is not None and self.url is None:
            env = {name: value.get_secret_value() for name, value in self.env.items()}
            return StdioHost([self.command, *self.args], env, cwd=self.cwd, connect_timeout=self.connect_timeout)
        if self.url is not None and self.command is None:
            headers = {name: value.get_secret_value() for name, value in self.headers.items()}
            token = None if self.token is None else self.token.get_secret_value()
            return HttpHost(self.url, token, headers=headers, connect_timeout=self.connect_timeout)
        raise InvalidArgument("a server must have either command or url", remedy="set one of them")


__all__ = ["McpEntry"]
