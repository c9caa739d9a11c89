"""Settings of an agent: arguments override the environment, which overrides the file (design 4)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, Self

import platformdirs
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from ..core.checks import NO_VARIABLES, has_variable
from ..core.errors import FunctionInvalid, SettingsInvalid, UsageError
from ..harness import GenerationOptions, Policy
from ..harness.gate import load_policy
from ..harness.limits import DEFAULT_CHOSEN_CALLS, DEFAULT_CONCURRENCY, DEFAULT_DEPTH, Limits, Stored
from ..mcp_client import HttpHost
from ..mcp_client.tools import McpEntry, McpServer
from ..mcp_client.tools.clients import read_servers
from ..memory.attachments import LIMIT as ATTACHMENT_LIMIT
from ..role_resolution import ROLE_LIMIT, Echo
from ..signatures import ADDRESS_REMEDY, address_problem
from ..storage import CONNECTIONS, MOST_CONNECTIONS, PostgresAddress, Storage
from ..storage.home import check_attachments_url, check_nats_url
from .upkeep import AGE_LIMIT, KEEP_LIMIT


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


_PREFIX = "WORLDAGENT_"
_FILE = f"{_PREFIX}SETTINGS"
_EMBEDDED = "embedded"
_FIELD: Final = re.compile(r'field "(\w+)"')


class _Elsewhere(ValueError):
    """A fault in a file that the settings name."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


class Settings(BaseSettings):
    """How an agent behaves unless a call says otherwise. The settings are read when an agent is created.

    Each field is also read from the environment, as `WORLDAGENT_` and its name in capitals, and from the TOML file that
    `WORLDAGENT_SETTINGS` names, else `settings.toml` in the user's configuration directory.

    Raises:
        SettingsInvalid: A value is invalid, or the file cannot be read; the text names it.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    lm: str | None = Field(default=None, description="the model, if WorldAgent(lm=...) is not given")
    api_base: str | None = Field(
        default=None,
        description="address of the model's service, if not the usual one, such as http://localhost:8000/v1",
    )
    models: dict[str, str] = Field(
        default={},
        description="models by names that workers and turns can use, as a table or JSON; models= overrides it",
    )
    model_options: GenerationOptions | None = Field(
        default=None,
        description="temperature, max_tokens and other options of model calls, as a table or JSON; those of a profile "
        "and a worker override it",
    )
    workers: Path | None = Field(
        default=None, description="folder of files called NAME.worker.md; its workers are added to those in workers="
    )
    home: Path | None = Field(default=None, description="folder of the databases, if not the user's data directory")
    database_url: SecretStr | None = Field(
        default=None,
        description="address of the Postgres database of turns and messages; none is a file in the home",
    )
    database_connections: int = Field(
        default=CONNECTIONS,
        ge=1,
        le=MOST_CONNECTIONS,
        description="how many transactions an agent runs at once in that database",
    )
    nats_url: SecretStr | None = Field(
        default=None,
        description="address of the NATS server that wakes the gateways of a society; none is without a broker",
    )
    attachments_url: SecretStr | None = Field(
        default=None,
        description="url of the content of attachments, such as s3://bucket/folder or file:///folder; none is a folder "
        "in the home",
    )
    policy: Path | None = Field(
        default=None,
        description="YAML or JSON file of the policy, if WorldAgent(policy=...) is not given; none requires approval "
        "for all that is not read_only",
    )
    profile: str | None = Field(
        default=None,
        description="the profile, if WorldAgent(profile=...) is not given; none is the built-in `general`, on the "
        "command line the user's if there is one",
    )
    profiles: Path | None = Field(
        default=None, description="folder of the user's profiles, if not profiles in the user's configuration directory"
    )
    tool_roots: list[Path] = Field(
        default=[],
        description="folders that the file tools stay inside and that shell runs in; JSON in the environment",
    )
    tool_search: list[str] = Field(
        default=[], description="folders and addresses that web_search looks through, if nothing else is given"
    )
    tool_shell: bool = Field(
        default=False, description="whether shell is available in tool_roots if the profile names no tools"
    )
    tool_web: bool = Field(default=False, description="whether web_fetch is available if the profile names no tools")
    tool_private: bool = Field(default=False, description="whether web_fetch can reach the machine and its network")
    role_host: str | None = Field(
        default=None,
        description="address of the role host, if Roles(host=...) is not given; none is the embedded store",
    )
    role_host_token: SecretStr | None = Field(default=None, description="the token for the role host")
    role_host_timeout: float = Field(default=4.0, gt=0, description="seconds that one call of the role host can take")
    role_host_tools: dict[str, str] = Field(
        default={}, description="the role host's own names for the tools of the contract, as a table or JSON"
    )
    mcp_servers: dict[str, McpEntry] = Field(
        default={},
        description="MCP servers whose tools can be called, by name, as tables or JSON",
    )
    mcp_files: list[Path] = Field(
        default=[],
        description="files of other programs, such as .mcp.json, whose MCP servers can be called too; mcp_servers "
        "overrides them",
    )
    mcp_variables: dict[str, SecretStr] = Field(
        default={},
        description="values of `${NAME}` in MCP servers, as a table or JSON; a list of names takes them from the "
        "environment",
    )
    sidecar_token: SecretStr | None = Field(
        default=None, description="the token that callers of worldagent serve --http must send"
    )
    sidecar_token_file: Path | None = Field(
        default=None, description="file with that token, or a .toml file with several tokens and what each can use"
    )
    role_limit: int = Field(default=ROLE_LIMIT, ge=1, description="bytes of UTF-8 in one role's content")
    role_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="key of role digests, the same on all machines of an installation, for example from "
        "`openssl rand -hex 32`; none is role.key in the home",
    )
    role_pin_ttl: float = Field(
        default=3600.0,
        ge=0,
        description="seconds that the role of a paused turn stays in memory, for on_role_change='pin'",
    )
    thread_role_ttl: float = Field(
        default=3600.0, gt=0, description="seconds that a thread's role is kept, if set() does not say"
    )
    role_timeout: float = Field(default=5.0, gt=0, description="seconds that each source of a role can take")
    role_cache_ttl: float = Field(
        default=5.0, ge=0, description="seconds that a stored role can stay in memory; 0 is off"
    )
    echo: Echo = Field(
        default="disclosure",
        description="what happens if an answer gives a role back: `disclosure` withholds a role of which it gives back "
        "most, `strict` any 40 characters in a row, `fail` ends the turn where `disclosure` withholds, `allow` does "
        "nothing",
    )
    model_timeout: float = Field(
        default=120.0, gt=0, description="seconds that one model call can take, with all its tries"
    )
    model_attempts: int = Field(default=3, ge=1, le=20, description="tries of a model call with a retryable error")
    model_backoff: float = Field(default=0.5, ge=0, description="seconds before the second try; doubles each time")
    thread_wait: float = Field(default=30.0, ge=0, description="seconds to wait for a thread that another turn owns")
    begin_queued: bool = Field(
        default=True,
        description="whether the agent begins the messages that are queued on its threads; else another process does",
    )
    background_of_thread: int = Field(
        default=4, ge=1, le=1000, description="background tasks that one conversation can have at a time"
    )
    background_of_account: int = Field(
        default=32, ge=1, le=10_000, description="background tasks that one account can have at a time"
    )
    report_chain: int = Field(
        default=8,
        ge=0,
        le=1000,
        description="turns that reports of work in the background begin one after the other, without a person",
    )
    turn_timeout: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="seconds that a turn can run before it fails and can be resumed; none means no limit",
    )
    turn_calls: int | None = Field(
        default=None,
        ge=0,
        description="calls of functions, workers and shapes in one turn; none means no limit; "
        f"without the setting, {DEFAULT_CHOSEN_CALLS} of those that models choose",
    )
    turn_concurrency: int = Field(
        default=DEFAULT_CONCURRENCY,
        ge=1,
        description="model calls and model-chosen tool calls that run at once in one turn",
    )
    turn_tokens: int | None = Field(
        default=None, ge=0, description="tokens of models, sent and received, in one turn; none means no limit"
    )
    turn_cost: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="US dollars of one turn, as far as they are known; none means no limit",
    )
    turn_depth: int = Field(default=DEFAULT_DEPTH, ge=1, le=20, description="how deep the calls of one turn may nest")
    account_limits: dict[str, float] = Field(
        default={},
        description="calls, tokens and cost of each account in a day (UTC), bytes of the messages, attachments, "
        "schedules and entries that it sends, and threads that it begins; schedules (100) and memory entries "
        "(10,000) at a time, as a table or JSON",
    )
    workspace_limits: dict[str, float] = Field(default={}, description="the same for each workspace")
    unattended: Literal["refuse", "pause"] = Field(
        default="refuse",
        description="what a scheduled run does if a person would be asked: refuse the call, or pause and notify",
    )
    guard: Literal["off", "unattended"] = Field(
        default="off",
        description="which turns are guarded unless they or the profile say so: none, or those that no person watches; "
        "no model of a guarded turn reads what a stranger can have written",
    )
    graph_changed_grace: float = Field(
        default=86_400.0,
        ge=0,
        le=AGE_LIMIT,
        description="seconds after which a turn of a message, an event or a schedule that cannot resume because of "
        "GraphChanged ends",
    )
    max_rounds: int = Field(default=8, ge=0, description="steps with calls before the conversation must answer")
    reader: str | None = Field(
        default=None,
        description="the model that reads parts of results for guarded models: a name from models, or a model string; "
        "none is the model of the turn",
    )
    find_tools_above: int | None = Field(
        default=100,
        ge=1,
        description="with more tools than this, the model is offered a search for them; none offers it all of them",
    )
    history_limit: int = Field(default=200, ge=1, le=1000, description="messages of the log that the model sees")
    history_characters: int | None = Field(
        default=None,
        ge=1000,
        description="characters of them; none is what the model's context allows, if that is known",
    )
    history_summaries: bool | None = Field(
        default=None,
        description="whether a summary replaces messages beyond these two limits, or they are dropped; none is yes, "
        "except for the embedded model",
    )
    checkpoint_keep: int = Field(
        default=100,
        ge=0,
        le=KEEP_LIMIT,
        description="newest checkpoints that are kept of each thread, and up to a quarter more; 0 keeps all",
    )
    checkpoint_age: float | None = Field(
        default=None,
        ge=0,
        le=AGE_LIMIT,
        description="seconds after which a checkpoint that is not the newest is removed; none means never",
    )
    attachment_limit: int = Field(default=ATTACHMENT_LIMIT, ge=1, description="bytes of one attachment")
    attachment_fallback: Literal["fail", "note"] = Field(
        default="fail",
        description="what happens to a message with an image or document that the model does not take, or that is too "
        "large: the message is refused, or the model gets the name alone",
    )
    model_takes: Literal["auto", "text", "images", "files"] = Field(
        default="auto",
        description="what the model takes: text alone, images too, or documents too; auto is all that its interface "
        "supports",
    )

    trace: bool = Field(
        default=True, description="whether the home keeps a trace of turns and calls, without any text of theirs"
    )
    trace_age: float | None = Field(
        default=2_592_000.0, ge=0, le=AGE_LIMIT, description="seconds after which a trace is removed; none means never"
    )
    memory: bool = Field(default=False, description="whether agents recall memory entries across threads")
    memory_embedder: str | None = Field(
        default=None, description="with `memory`, the model of embeddings that also searches entries by vectors"
    )
    capabilities: tuple[str, ...] = Field(
        default=(),
        description="names of installed capabilities that agents have, besides those of capabilities=, as JSON",
    )
    examples: Literal["off", "asked", "all"] = Field(
        default="off",
        description="which turns are kept as examples, without roles: none, those that are begun with example=True, or "
        "all",
    )
    event_age: float = Field(
        default=86_400.0,
        ge=0,
        le=AGE_LIMIT,
        description="seconds that the events of a recorded turn are kept after it last changed",
    )

    society_age: float | None = Field(
        default=7_776_000.0,
        ge=0,
        le=AGE_LIMIT,
        description="seconds after which a gateway and `threads prune` remove finished work of members: events with "
        "threads and episodes of their turns, messages, what members did, and steps of their lives; none means never",
    )

    model_tools: Literal["auto", "native", "json"] = Field(
        default="auto",
        description="how the model is offered tools: by its service's own means, or in words; auto uses the service's "
        "means if it is known to have them, and tries once behind api_base and for services with any model",
    )
    model_schemas: Literal["auto", "off"] = Field(
        default="auto",
        description="whether the model's service is asked to hold an answer with other fields than texts to their JSON "
        "Schema; auto asks the services that are known to have it, and tries once behind api_base",
    )
    model_cache_hints: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="whether Anthropic and OpenAI are asked to cache a part of each prompt; auto does not ask a server "
        "behind api_base",
    )

    def __init__(self, **values: Any) -> None:
        problem, remedy = "", f"correct the argument, the variable {_PREFIX}..., or the file {str(settings_file())!r}"
        try:
            if os.environ.get(_FILE) and not settings_file().is_file():
                raise FileNotFoundError
            super().__init__(**values)
        except ValidationError as failure:
            found = failure.errors(include_input=False, include_url=False)
            problem = "; ".join(
                ": ".join(filter(None, (".".join(map(str, item["loc"])), item["msg"].removeprefix("Value error, "))))
                for item in found
            )
            elsewhere = found[0].get("ctx", {}).get("error")
            if isinstance(elsewhere, _Elsewhere):  # no setting is at fault
                remedy = elsewhere.remedy
        except SettingsError as failure:  # its text names the field, and has no value
            [field] = _FIELD.findall(str(failure)) or ["..."]
            problem = f"{_PREFIX}{field.upper()} in the environment is not JSON"
            remedy = 'write a list as ["a", "b"], and a table as {"name": "value"}'
        except (OSError, ValueError) as failure:
            problem = f"{settings_file()}: {type(failure).__name__}"
        if problem:
            raise SettingsInvalid(f"the settings are invalid: {problem}", remedy=remedy)

    @model_validator(mode="before")
    @classmethod
    def _with_servers_of_files(cls, given: Any) -> Any:
        files, servers = given.get("mcp_files", ()), given.get("mcp_servers", {})
        problem: ValueError | None = None
        if not isinstance(files, list | tuple) or not all(isinstance(file, str | PathLike) for file in files):
            raise ValueError("mcp_files must be a list of paths")
        try:
            return {**given, "mcp_servers": read_servers(servers, files)}
        except UsageError as error:
            of_setting = error.problem.startswith("mcp_servers")
            said = f"{error.problem}; {error.remedy}"
            problem = ValueError(said) if of_setting else _Elsewhere(error.problem, error.remedy)
        raise problem

    @field_validator("mcp_variables", mode="before")
    @classmethod
    def _from_environment(cls, given: Any) -> Any:
        if isinstance(given, list | tuple | set) and all(isinstance(name, str) for name in given):
            return {name: os.environ[name] for name in given if name in os.environ}
        return given

    @field_validator("api_base")
    @classmethod
    def _address(cls, given: str | None) -> str | None:
        problem = None if given is None else address_problem(given)
        if problem is not None:
            raise ValueError(f"{problem}; {ADDRESS_REMEDY}")
        return given

    @model_validator(mode="after")
    def _without_variables(self) -> Self:
        for name in type(self).model_fields.keys() - {"mcp_servers", "mcp_variables"}:
            if has_variable(getattr(self, name)):
                raise ValueError(
                    f"{name} has a variable, and {NO_VARIABLES}; write the value itself, or set it in the "
                    f"environment as {_PREFIX}{name.upper()}"
                )
        return self

    @model_validator(mode="after")
    def _usable(self) -> Self:
        url, objects, broker = self.database_url, self.attachments_url, self.nats_url
        made: dict[str, Callable[[], object]] = {
            "role_host": self.host,
            "database_url": lambda: None if url is None else PostgresAddress(url.get_secret_value()),
            "attachments_url": lambda: None if objects is None else check_attachments_url(objects.get_secret_value()),
            "nats_url": lambda: None if broker is None else check_nats_url(broker.get_secret_value()),
            **{
                entry.place or f"mcp_servers.{name}": partial(entry.server, self.mcp_variable)
                for name, entry in self.mcp_servers.items()
                if not entry.disabled
            },
            "account_limits": lambda: limits_of(self.account_limits),
            "workspace_limits": lambda: limits_of(self.workspace_limits),
        }
        for name, make in made.items():
            problem: ValueError | None = None
            try:
                make()
            except UsageError as error:
                said, of_file = f"{name}: {error.problem}", name.startswith("'")
                problem = _Elsewhere(said, error.remedy) if of_file else ValueError(f"{said}; {error.remedy}")
            if problem is not None:
                raise problem
        return self

    def storage(self, given: Storage | None = None) -> Storage:
        """Return where an agent keeps its files: `given`, completed by the settings."""
        given = given if given is not None else Storage()
        url = None if self.database_url is None else self.database_url.get_secret_value()
        attachments = None if self.attachments_url is None else self.attachments_url.get_secret_value()
        return Storage(
            home=given.home if given.home is not None else self.home,
            url=given.url if given.url is not None else url,
            connections=given.connections if given.connections is not None else self.database_connections,
            attachments_url=given.attachments_url if given.attachments_url is not None else attachments,
        )

    def gate_policy(self, given: Policy | None = None) -> Policy:
        """Return `given`, else the policy in the file that the setting `policy` names.

        Raises:
            PolicyInvalid: The file cannot be read or has an invalid entry; the text names file and line.
            MissingExtra: The extra `yaml` is not installed.
        """
        if given is not None or self.policy is None:
            return given if given is not None else Policy()
        # If a user is not known, `~name` is left as it is and names a file in this folder, which does not exist.
        return load_policy(os.path.expanduser(self.policy))

    def host(self) -> HttpHost | None:
        """Return the role host that `role_host` names, with its token; None is the embedded store."""
        token = None if self.role_host_token is None else self.role_host_token.get_secret_value()
        if self.role_host is None or self.role_host == _EMBEDDED:
            return None
        return HttpHost(self.role_host, token, timeout=self.role_host_timeout, tools=self.role_host_tools)

    def mcp_variable(self, name: str) -> str | None:
        """Return the value of a variable of MCP servers; None if `mcp_variables` has none."""
        value = self.mcp_variables.get(name)
        return None if value is None else value.get_secret_value()

    def servers(self) -> dict[str, McpServer]:
        """Return the MCP servers that are not disabled, with the values of their variables."""
        found = self.mcp_servers.items()
        return {name: entry.server(self.mcp_variable) for name, entry in found if not entry.disabled}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = TomlConfigSettingsSource(settings_cls, toml_file=settings_file())
        # Looking for a variable of each field takes longer than all else, so it is done where there is one.
        if any(name.upper().startswith(_PREFIX) for name in os.environ):
            return init_settings, env_settings, file
        return init_settings, file


_STORED: Final = ("bytes", "threads", "schedules", "entries")
_ACCOUNT_KEEPS: Final[Mapping[str, float]] = {"schedules": 100, "entries": 10_000}


def limits_of(given: Mapping[str, float]) -> Limits:
    """Convert a mapping with the keys calls, tokens and cost, and those of `Stored`, to `Limits`.

    Raises:
        FunctionInvalid: A key is unknown or a value is invalid.
    """
    unknown = sorted(given.keys() - {"calls", "tokens", "cost", *_STORED})
    if unknown:
        raise FunctionInvalid(
            f"the limit {unknown[0]!r} is unknown",
            remedy=f"give any of calls, tokens, cost, {', '.join(_STORED)}",
        )
    # TOML and JSON can give an integer as a float.
    found = {n: int(v) if n != "cost" and float(v).is_integer() else v for n, v in given.items()}
    Stored(**{name: found.pop(name) for name in _STORED if name in found})  # type: ignore[arg-type]  # it checks them
    return Limits(**found)  # type: ignore[arg-type]  # they are checked there


def stored_of(given: Mapping[str, float], *, account: bool) -> Stored:
    """What a mapping that `limits_of` has checked says about storage; an account can keep only so much by default."""
    given = {**(_ACCOUNT_KEEPS if account else {}), **given}
    return Stored(**{name: int(given[name]) for name in _STORED if name in given})


def settings_file() -> Path:
    """Return the settings file. The default one need not exist; a file that the environment names must."""
    named = os.environ.get(_FILE)
    if named:
        # If a user is not known, `~name` is left as it is and names a file in this folder, which does not exist.
        return Path(os.path.expanduser(named)).absolute()
    return platformdirs.user_config_path("worldagent", appauthor=False) / "settings.toml"
