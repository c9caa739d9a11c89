"""The settings of an MCP server for an agent, and what the server offers and answers, as values.

`source` connects and makes its tools Functions. `link` reads offers and answers; it and `tasks` alone import `mcp`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from ...core.errors import FunctionInvalid, InvalidArgument
from ...core.events import Risk
from ...core.validation import is_text
from ...harness.function import Readers, are_globs, are_readers, risks
from ..hosts import HttpHost, StdioHost, check_seconds
from ..logins import Login, LoginBy

RESULT_LIMIT: Final = 1024 * 1024
"""The default limit of characters of one result, as JSON."""

TASK_TIMEOUT: Final = 3600.0
"""The default limit of seconds of a task of a server."""

_LONGEST: Final = 64
_PREFIX = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]{0,31})?")


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server whose tools an agent can call.

    Attributes:
        host: Its address, or its program.
        prefix: The beginning of the names of its Functions; None is the server's own name and `_`.
        allow: Globs for the names that it gives its tools; only tools that match one exist.
        deny: Globs for tools that do not exist, even if `allow` matches them.
        risk: The risk of its tools, by globs for the names that it gives them; the first match counts. A tool that
            matches none counts as `write` and `network`.
        fields: Fields of results that the server's system makes, such as ids, by globs for the names that it gives its
            tools; the first match counts. Each field is a glob over a dotted path in the structured result. Rules can
            name them as the origin of an argument. The server cannot declare them.
        readers: Who may see results, by globs for the names that it gives its tools; the first match counts. Each is a
            list of globs over recipients, or a function of an item as for `@tool`, such as a member of the list that a
            tool returns. Guarded models pass them on only to these (H11).
        trust_annotations: Whether the server's hints about a tool's risk count, if `risk` does not match.
        elicitation: Whether it can ask a person during a call.
        approval: Whether each call requires approval, whatever the policy allows.
        offered: Whether the conversation can call its tools. Workers can always call what their `tools` name.
        skills: Whether the agent has the skills that it offers as resources `skill://NAME/SKILL.md` and below.
        login: How to log in to it with OAuth. None is `Login()` for an address without a token and without a header
            `Authorization`; other servers need no login.
        timeout: Seconds that one call can take, without the time in which a person is asked.
        task_timeout: The same for a call that the server answers with a task; `timeout` is then for each look at it.
        result_limit: The limit of characters of one result as JSON; a longer one is refused.

    Raises:
        InvalidArgument: An argument is invalid; the text names it.
    """

    host: HttpHost | StdioHost
    prefix: str | None = field(default=None, kw_only=True)
    allow: Sequence[str] = field(default=("*",), kw_only=True)
    deny: Sequence[str] = field(default=(), kw_only=True)
    risk: Mapping[str, Risk | Iterable[Risk]] = field(default_factory=dict, kw_only=True)
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict, kw_only=True)
    readers: Mapping[str, Sequence[str] | Readers] = field(default_factory=dict, kw_only=True)
    trust_annotations: bool = field(default=False, kw_only=True)
    elicitation: bool = field(default=False, kw_only=True)
    approval: bool = field(default=False, kw_only=True)
    offered: bool = field(default=True, kw_only=True)
    skills: bool = field(default=False, kw_only=True)
    login: Login | None = field(default=None, kw_only=True)
    timeout: float = field(default=60.0, kw_only=True)
    task_timeout: float = field(default=TASK_TIMEOUT, kw_only=True)
    result_limit: int = field(default=RESULT_LIMIT, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.host, HttpHost | StdioHost):
            raise InvalidArgument(
                "`host` must be an HttpHost or a StdioHost",
                remedy="pass one with the address or program of the MCP server",
            )
        if self.prefix is not None and not (isinstance(self.prefix, str) and _PREFIX.fullmatch(self.prefix)):
            raise InvalidArgument(
                f"`prefix` must be a valid beginning of a name, got {str(self.prefix)[:64]!r}",
                remedy="use up to 32 letters, digits, '_', '.' or '-', no digit first",
            )
        for key in ("allow", "deny"):
            given = getattr(self, key)
            globs = () if isinstance(given, str) else tuple(given)
            if isinstance(given, str) or not all(isinstance(glob, str) and glob for glob in globs):
                raise InvalidArgument(f"`{key}` must be a list of globs", remedy="pass one such as ['read_*']")
            object.__setattr__(self, key, globs)
        self._check_globs("fields", "search", "id")
        self._check_globs("readers", "read_file", "*@corp.com")
        self._check_login()
        check_seconds("timeout", self.timeout)
        check_seconds("task_timeout", self.task_timeout)
        if isinstance(self.result_limit, bool) or self.result_limit < 1:
            raise InvalidArgument(
                f"`result_limit` must be a positive number of characters, got {self.result_limit!r}",
                remedy="pass 1 or more",
            )
        object.__setattr__(self, "risk", {glob: _risks(glob, given) for glob, given in dict(self.risk).items()})

    def _check_globs(self, name: str, tool: str, glob: str) -> None:
        """Check a mapping of tools to globs; readers can also be a function.

        Args:
            name: The name of the mapping.
            tool: A tool, for the remedy.
            glob: A glob, for the remedy.
        """
        given: object = getattr(self, name)
        pairs = dict(given) if isinstance(given, Mapping) else {"": ""}
        fits = are_readers if name == "readers" else are_globs
        if not all(is_text(each) and globs and fits(globs) for each, globs in pairs.items()):
            raise InvalidArgument(
                f"`{name}` must map names of tools to lists of globs",
                remedy=f"pass one such as {{{tool!r}: [{glob!r}]}}",
            )
        kept = {each: globs if callable(globs) else tuple(globs) for each, globs in pairs.items()}
        object.__setattr__(self, name, kept)

    def fields_of(self, tool: str) -> tuple[str, ...]:
        """The declared fields of a tool's results, by the name that the server gives it."""
        return next((tuple(each) for glob, each in self.fields.items() if fnmatchcase(tool, glob)), ())

    def readers_of(self, tool: str) -> Readers | None:
        """Who may see a tool's results, by the name that the server gives it; None is everybody."""
        found = next((each for glob, each in self.readers.items() if fnmatchcase(tool, glob)), None)
        return found if found is None or callable(found) else tuple(found)

    def _check_login(self) -> None:
        host, given = self.host, self.login
        takes = isinstance(host, HttpHost) and host.token is None and not _authorizes(host.headers)
        if given is None and takes:
            object.__setattr__(self, "login", Login())
        elif given is not None and not (takes and isinstance(given, Login)):
            raise InvalidArgument(
                "`login` must be a Login, and needs an HttpHost without a token",
                remedy="leave out the token and the header Authorization, or the login",
            )
        if self.skills and self.login is not None and self.login.by == "account":
            raise InvalidArgument(
                "`skills` are the agent's, and cannot come from a server with a login of each account",
                remedy="use a login of the workspace, or leave out skills=",
            )

    def prefix_as(self, name: str) -> str:
        """The beginning of the names of its Functions if the server is called `name`."""
        return _prefix(name, self.prefix)

    def allows(self, tool: str) -> bool:
        """Whether a tool of this name is allowed."""
        allowed, denied = (any(fnmatchcase(tool, glob) for glob in globs) for globs in (self.allow, self.deny))
        return allowed and not denied

    def risk_of(self, tool: str) -> tuple[Risk, ...] | None:
        """The configured risk of a tool of this name, or None."""
        return next((risks(tool, given) for glob, given in self.risk.items() if fnmatchcase(tool, glob)), None)


def _authorizes(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)


def name_of(prefix: str, tool: str) -> str:
    """The name of the Function of a tool. Characters that a name cannot contain become `_`."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{prefix}{tool}")[:_LONGEST]
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"[:_LONGEST]


def _prefix(name: str, prefix: str | None) -> str:
    return name_of(f"{name}_", "") if prefix is None else prefix


def _risks(glob: str, given: object) -> tuple[Risk, ...]:
    problem = ""
    try:
        return risks(glob, given)
    except FunctionInvalid as error:
        problem, remedy = error.problem, error.remedy
    raise InvalidArgument(problem, remedy=remedy)


Values = Callable[[str], str | None]
"""The value of a variable of an entry; None if it has none."""

_VARIABLE: Final = re.compile(r"\$\{([^}]*)(\}?)")
_WORD: Final = re.compile(_VARIABLE.pattern + r"|(?<!\S)\$([A-Z_][A-Z0-9_]*)(?!\S)")  # in `env` and `headers`


_OF_LOGIN: Final = ("client_id", "client_secret", "client_metadata", "issuer", "scope")


class McpEntry(BaseModel):
    """One server of the setting `mcp_servers`: a program by `command`, or an address by `url`.

    `${NAME}`, `${env:NAME}`, `${input:NAME}` and `${NAME:-DEFAULT}` in `command`, `args`, `env`, `cwd`, `url`,
    `headers`, `token` and the texts of a login are variables. `$NAME` is one too where it is a word of a value of `env`
    or `headers`.

    Attributes:
        type: Required by other clients; `stdio` and `http` are supported.
        command: The program.
        args: Its arguments.
        env: Its environment variables.
        cwd: Its working directory.
        url: The address.
        headers: Headers of every request.
        token: A bearer token, sent with every request.
        login: Who logs in with OAuth, `workspace`, `account` or `client`. Default: `workspace`, if an address refuses
            access.
        client_id: The id of a client that was registered at the authorization server.
        client_secret: Its secret.
        client_metadata: The address of the client's metadata document, instead of a client_id.
        issuer: The only authorization server that is used.
        scope: The scopes to ask for.
        connect_timeout: Seconds until calls can be made.
        disabled: Whether it is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    _place: str = PrivateAttr(default="")  # the file and the name there, for errors

    type: Literal["stdio", "http", "streamable-http", "streamable_http"] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, SecretStr] = {}
    cwd: Path | None = None
    url: str | None = None
    headers: dict[str, SecretStr] = {}
    token: SecretStr | None = None
    login: LoginBy | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    client_metadata: str | None = None
    issuer: str | None = None
    scope: str | None = None
    prefix: str | None = None
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    risk: dict[str, Risk | tuple[Risk, ...]] = {}
    trust_annotations: bool = False
    elicitation: bool = False
    offered: bool = True
    skills: bool = False
    timeout: float = Field(default=60.0, gt=0)
    task_timeout: float = Field(default=TASK_TIMEOUT, gt=0)
    connect_timeout: float = Field(default=20.0, gt=0)
    result_limit: int = Field(default=RESULT_LIMIT, ge=1)
    disabled: bool = False

    @property
    def place(self) -> str:
        """The file of another program that has it, and its name there; empty if no file has it."""
        return self._place

    def server(self, values: Values = lambda _: None) -> McpServer:
        """The server, with the value of each variable.

        Raises:
            InvalidArgument: A variable has no value, it does not have exactly one of `command` and `url`, or one of its
                values is invalid.
        """
        shared = type(self).model_fields.keys() & {each.name for each in fields(McpServer)} - {"login"}
        texts = {place: _filled(place, text, values) for place, text in self._texts()}
        settings = {name: getattr(self, name) for name in shared}
        return McpServer(self._host(texts), login=self._login(texts), **settings)

    def _login(self, texts: Mapping[str, str]) -> Login | None:
        given = {name: texts[name] for name in _OF_LOGIN if name in texts}
        return Login(by=self.login or "workspace", **given) if given or self.login is not None else None

    def _host(self, texts: Mapping[str, str]) -> HttpHost | StdioHost:
        if self.command is not None and self.url is None:
            argv = [texts[place] for place in ("command", *(f"args.{index}" for index in range(len(self.args))))]
            env = {name: texts[f"env.{name}"] for name in self.env}
            cwd = None if self.cwd is None else Path(texts["cwd"])
            return StdioHost(argv, env, cwd=cwd, connect_timeout=self.connect_timeout)
        if self.url is not None and self.command is None:
            headers = {name: texts[f"headers.{name}"] for name in self.headers}
            return HttpHost(texts["url"], texts.get("token"), headers=headers, connect_timeout=self.connect_timeout)
        raise InvalidArgument("a server must have either command or url", remedy="set one of them")

    def _texts(self) -> Iterator[tuple[str, str]]:
        """The values that can have variables, by their places."""
        for place in ("command", "cwd", "url", "token", *_OF_LOGIN):
            text = getattr(self, place)
            if text is not None:
                yield place, text.get_secret_value() if isinstance(text, SecretStr) else str(text)
        yield from ((f"args.{index}", word) for index, word in enumerate(self.args))
        for place, secrets in (("env", self.env), ("headers", self.headers)):
            yield from ((f"{place}.{name}", secret.get_secret_value()) for name, secret in secrets.items())

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of its variables."""
        found: list[str] = []

        def value(name: str) -> str:
            found.append(name)
            return ""

        for place, text in self._texts():
            _filled(place, text, value)
        return tuple(dict.fromkeys(found))

    @property
    def label(self) -> str:
        """Its program, or its address without the query, as it is written: variables are not filled in."""
        command = self.command or ""
        return (os.path.basename(command) or command) if self.url is None else re.split("[?#]", self.url)[0]

    def prefix_as(self, name: str) -> str:
        """The beginning of the names of its Functions if the server is called `name`."""
        return _prefix(name, self.prefix)


def _filled(place: str, text: str, values: Values) -> str:
    """A text with the values of its variables. They are not searched for variables."""

    def value(found: re.Match[str]) -> str:
        body = found[3] if found[1] is None else found[1]
        name, is_default, default = body.partition(":-")
        name = name.removeprefix("env:").removeprefix("input:")
        if not name or found[2] == "" or "${" in body:
            raise InvalidArgument(
                f"`{place}` has a '${{' that begins no variable", remedy="write ${NAME} or ${NAME:-DEFAULT}"
            )
        given = values(name)
        if is_default:
            return given or default
        if given is None:
            raise InvalidArgument(
                f"`{place}` needs the variable {name[:80]!r}, which has no value",
                remedy="name it in the setting mcp_variables, and set it",
            )
        return given

    return (_WORD if place.startswith(("env.", "headers.")) else _VARIABLE).sub(value, text)


# --- what it offers and answers ---------------------------------------------------------------------------------------

Progress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as its server describes it.

    Attributes:
        name: The server's own name for it.
        description: What it does, as the server says.
        title: Its name for people, as the server says.
        params: The JSON Schema of its arguments.
        result: The JSON Schema of its structured result, if it has one.
        annotations: The server's hints about its risk.
    """

    name: str
    description: str = ""
    title: str = ""
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Everything that a server offers.

    Attributes:
        tools: Its tools.
        resources: Whether it has resources.
        tasks: Whether it can answer calls with tasks.
        invalid_tools: Names of tools whose description violates MCP, and why.
    """

    tools: tuple[ToolSpec, ...] = ()
    resources: bool = False
    tasks: bool = False
    invalid_tools: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResource:
    """A resource of an MCP server. All values come from the server.

    Attributes:
        uri: The argument for `McpSource.read`.
        name: Its name.
        description: What it contains.
        media_type: Its media type, such as `text/plain`; empty if unknown.
        size: Its size in bytes, if known.
    """

    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question of a server for a person during a call.

    Attributes:
        message: The question.
        schema: The JSON Schema of the answer.
        key: The server's key for it, if the server asks by ending the round of the call.
    """

    message: str
    schema: Mapping[str, Any]
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTask:
    """A task of a server, which goes on with a call after its answer.

    Attributes:
        id: The server's id for it.
        message: What it is at, as the server says.
        wait: Seconds after which the server can be asked for it again.
    """

    id: str
    message: str = ""
    wait: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """The answer of a server to a call.

    Attributes:
        content: Blocks, as JSON.
        structured: The structured result; None if there is none.
        failed: Whether the tool reports that it failed.
        asks: Questions for a person. The call is then made again with the answers and with `state`.
        state: The value to send with the next round.
        beyond: Whether it asks for something other than a person's answer.
        task: The task that goes on with the call, if it has not ended.
    """

    content: tuple[Mapping[str, Any], ...] = ()
    structured: Any = None
    failed: bool = False
    asks: tuple[Asked, ...] = ()
    state: str | None = None
    beyond: bool = False
    task: RemoteTask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """One round of a call.

    Attributes:
        tool: The server's name of the tool.
        arguments: Its arguments.
        progress: Called with the progress of the call.
        answers: A person's answers of the round before, by the server's key of the question; None declines.
        state: The state that the server sent in the round before.
    """

    tool: str
    arguments: Mapping[str, Any]
    progress: Progress | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None
