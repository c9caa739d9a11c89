"""Tools, workers, models and limits from arguments, then settings. `harness` and `signatures` define what they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction, isroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from ..core import Scope, canonical_json
from ..core.capability import InputField
from ..core.errors import FunctionInvalid, InvalidArgument, ProfileInvalid
from ..core.pauses import UnattendedMode
from ..core.validation import describe_failure, is_text
from ..graphs import SKILL, SUBAGENT, GraphOptions, Shape
from ..graphs.shape import shape_call
from ..harness import Function, GenerationOptions, Registry, Worker, load_workers, tool
from ..harness.limits import DEFAULT_CHOSEN_CALLS, Limits, Usage
from ..harness.schema import result_of
from ..mcp_client.tools import McpEntry, McpServer, check_prefixes
from ..profiles import Profile, Profiles, check_tools, compose
from ..profiles.catalogue import GENERAL_PROFILE
from ..signatures import check_named
from ..tools import BUILTIN, BuiltinTools
from ..tools.builtin import EXPLORE, EXPLORED_WITH
from .settings import limits_of, stored_of

if TYPE_CHECKING:
    from ..signatures import LM, ModelCaller, ModelOptions
    from ..signatures.converse import ConverseClass
    from .settings import Settings
    from .stores import Stores

CHARACTERS: Final = 4
"""Characters that count as one token if no tokenizer is available (`compression_threshold` of a profile, P5)."""


def chosen_profile(given: str | Profile | None, settings: Settings) -> Profile:
    """Return the profile that an agent starts with: the given one, else that of the settings, else what ships.

    The files of a user are read only for a profile that code or a setting names, so that they do not change a program
    that names none (P3).

    Raises:
        ProfileInvalid: No profile has this name, or its file is invalid.
        MissingExtra: It is in a file, and the extra `yaml` is not installed.
    """
    if isinstance(given, Profile):
        return given
    if given is not None and not isinstance(given, str):
        raise InvalidArgument(
            f"`profile` must be a name or a Profile, got {type(given).__name__!r}",
            remedy="pass the name of a profile, or a Profile",
        )
    name = given if given is not None else settings.profile
    return GENERAL_PROFILE if name is None else Profiles.open(user=settings.profiles).get(name)


def allowed_tools(given: BuiltinTools | None, settings: Settings) -> BuiltinTools:
    """Return what the built-in tools can access: `given`, else the settings."""
    if given is not None:
        return given
    search = None
    if settings.tool_search:
        from ..tools.web import LocalIndex  # loads modules that most agents do not need

        search = LocalIndex(settings.tool_search)
    roots = tuple(root.expanduser() for root in settings.tool_roots)
    return BuiltinTools(
        roots=roots,
        search=search,
        shell=settings.tool_shell,
        web=settings.tool_web,
        allow_private=settings.tool_private,
    )


def registry_of(
    functions: Iterable[Function],
    workers: Iterable[Worker | Function],
    profile: Profile,
    allowed: BuiltinTools,
    *,
    home: Path,
) -> Registry:
    """Return the registry of an agent: its own callables, and the built-in tools that the profile and the agent allow.

    Args:
        functions: The agent's functions.
        workers: Its workers.
        profile: Its profile.
        allowed: What the built-in tools can access.
        home: The agent's home, which the built-in tools cannot access.

    Raises:
        InvalidArgument: A root of the built-in tools is in the home.
        ProfileInvalid: The profile names a tool that the agent does not allow, or exceeds one of its limits.
        NameTaken, FunctionInvalid: See `Registry`.
    """
    functions, workers = tuple(functions), tuple(workers)
    own = {getattr(each, "name", None) for each in (*functions, *workers)}
    wanted = allowed.usable if profile.tools is None else profile.tools
    names = [name for name in wanted if name not in own]
    for name in profile.tools or ():
        if name in BUILTIN and name not in own and not allowed.allows(name):
            raise _beyond(profile, "tools", f"the agent does not let its profiles use the tool {name!r}")
    for tool_name, settings in profile.tool_settings.items():
        for key, most in (("timeout", allowed.timeouts), ("output_limit", allowed.output_limits)):
            if tool_name in most and settings.get(key, 0) > most[tool_name]:
                problem = f"{key} of {tool_name!r} must be at most {most[tool_name]:.15g}, got {settings[key]:.15g}"
                raise _beyond(profile, f"tool_settings.{tool_name}.{key}", problem)
    made = allowed.named(names, profile.tool_settings, home=home)
    return Registry(
        (*functions, *(each for each in made if isinstance(each, Function))),
        (*workers, *(each for each in made if isinstance(each, Worker))),
        allow=profile.tools,
    )


def check_profile(
    profile: Profile,
    registry: Registry,
    shapes: Iterable[Shape[Any, Any]],
    servers: Mapping[str, McpServer],
    allowed: BuiltinTools,
) -> None:
    """Refuse a profile that names a tool which the agent cannot have.

    Raises:
        ProfileInvalid: It names one; the text says file and line.
    """
    if profile.tools is None:
        return
    names = [*(function.name for function in registry.declared), *(shape.key for shape in shapes), SUBAGENT, SKILL]
    known = dict.fromkeys([*names, *(name for name in BUILTIN if allowed.allows(name))])
    prefixes = [server.prefix_as(name) for name, server in servers.items()]
    check_tools(profile, known, prefixes)
    _check_explore(profile, registry, tuple(prefixes))


def _check_explore(profile: Profile, registry: Registry, prefixes: tuple[str, ...]) -> None:
    """Refuse the built-in `explore` in a profile that names none of the tools that it explores with."""
    declared = {function.name: function.tools for function in registry.declared}
    listed = list(profile.tools or ())
    if (
        EXPLORE in listed
        and declared.get(EXPLORE) == EXPLORED_WITH
        and not any(name in declared or name.startswith(prefixes) for name in EXPLORED_WITH)
    ):
        place = f"tools.{listed.index(EXPLORE)}"
        raise ProfileInvalid(
            f"{profile.sources.get(place, f'the profile {profile.name!r}')}: {EXPLORE!r} can use none of its tools, "
            "because the profile names none of them",
            remedy=f"add one or more of {', '.join(EXPLORED_WITH)}, or remove {EXPLORE!r}",
        )


def servers_of(profile: Profile, settings: Settings, given: Mapping[str, McpServer]) -> dict[str, McpServer]:
    """Return the MCP servers of an agent: those given override the settings', which override the profile's.

    Args:
        profile: Its servers require approval for each call, whatever risk it declares for them.
        settings: The settings.
        given: The given servers, by name.

    Raises:
        ProfileInvalid: A variable of a server of the profile has no value.
        NameTaken: Tools of two servers could get the same name.
    """
    own = {
        name: _server_of_profile(profile, name, entry, settings)
        for name, entry in profile.mcp_servers.items()
        if not entry.disabled and name not in settings.mcp_servers
    }
    servers = {**own, **settings.servers(), **given}
    check_prefixes(servers)
    return servers


def _server_of_profile(profile: Profile, name: str, entry: McpEntry, settings: Settings) -> McpServer:
    try:
        return replace(entry.server(settings.mcp_variable), approval=True)
    except InvalidArgument as error:
        problem, remedy = error.problem, error.remedy
    key = f"mcp_servers.{name}"
    raise ProfileInvalid(
        f"{profile.sources.get(key, f'the profile {profile.name!r}')}: {key!r}: {problem}", remedy=remedy
    )


def prompt_of(profile: Profile, registry: Registry, allowed: BuiltinTools) -> str | None:
    """Return what follows the identity in the conversation's instructions, or None (P2)."""
    return compose(profile, registry.names, allowed.roots)


def bounded(options: GraphOptions, profile: Profile) -> GraphOptions:
    """Return the limits of turns with a profile's values."""
    memory, verification = profile.memory, profile.verification
    changes: dict[str, Any] = {"kept_stay": memory.keep_marked}
    if memory.short_term_size is not None:
        changes["history_limit"] = memory.short_term_size
    if memory.compression_threshold is not None:
        wanted = memory.compression_threshold * CHARACTERS
        changes["history_characters"] = min(wanted, options.history_characters or wanted)
    if memory.compression_ratio is not None:
        changes["summary_part"] = memory.compression_ratio
    if memory.strategy is not None:
        changes["summaries"] = memory.strategy != "sliding_window"
        changes["results_stay"] = memory.strategy == "selective"
    if verification.enabled:
        changes["verifications"] = verification.max_iterations
    return replace(options, **changes)


def check_skills(profile: Profile) -> None:
    """Refuse a skill if the profile switches skills off.

    Raises:
        InvalidArgument: The profile does.
    """
    if not profile.skills.enabled:
        raise InvalidArgument(
            f"the profile {profile.name!r} switches skills off",
            remedy="start the agent with a profile that has skills, or run the skill's shape as a task",
        )


def _beyond(profile: Profile, key: str, problem: str) -> ProfileInvalid:
    where = profile.sources.get(key, f"the profile {profile.name!r}")
    return ProfileInvalid(
        f"{where}: {problem}",
        remedy="lower it in the profile, or allow it with WorldAgent(builtin_tools=BuiltinTools(...))",
    )


T = TypeVar("T")

TurnModel = str | Sequence[str] | None
"""The model of one turn: a name from `WorldAgent(models=...)` or a model string, or several to try in turn."""

MAX_TURN_MODELS: Final = 8  # models in one turn's `model=`
MAX_MODEL_NAME_CHARACTERS: Final = 200  # characters of a name


def all_workers(given: Iterable[object], settings: Settings) -> tuple[Worker | Function, ...]:
    """Return the workers of an agent; those from the folder of the settings come last.

    Args:
        given: Workers, functions that replace a worker, files and folders.
        settings: Names the folder.

    Raises:
        WorkerInvalid: A file is invalid.
        MissingExtra: There are worker files, and the extra `yaml` is not installed.
        InvalidArgument: `given` is a single value and not a list.
    """
    if isinstance(given, str | bytes | os.PathLike | Worker | Function):
        raise InvalidArgument("`workers` must be a list", remedy="pass workers=[...]")
    found: list[Worker | Function] = []
    for each in listed("workers", given):
        if isinstance(each, os.PathLike):
            found += load_workers(each)
        else:
            _check_native("workers", each)
            found.append(each)  # type: ignore[arg-type]  # the registry checks the type
    if settings.workers is not None:
        found += load_workers(settings.workers.expanduser())
    return tuple(found)


def all_tools(given: Iterable[object]) -> tuple[Function, ...]:
    """Return the tools of an agent as Functions.

    Args:
        given: Python functions, results of `@tool` and `@flow`, tools of dspy and of LangChain.

    Raises:
        FunctionInvalid: One has no docstring or a parameter without a type hint, or is something else.
        InvalidArgument: `given` is a single value and not a list.
    """
    if isinstance(given, BuiltinTools):
        raise InvalidArgument("`tools` must not be a BuiltinTools", remedy="pass it as builtin_tools=")
    return tuple(map(_function, listed("tools", given)))


def _check_native(place: str, given: object) -> None:
    """Refuse a module of dspy and a graph, which must be made a shape or a worker.

    Raises:
        FunctionInvalid: It is one.
    """
    remedy = shape_call(given, place=place)
    if remedy is not None:
        name = getattr(given, "__name__", type(given).__name__)
        raise FunctionInvalid(
            f"`{place}` must hold only {'functions' if place == 'tools' else place}, got {name!r}",
            remedy=f"{remedy}; with description= the conversation can call it",
        )


def _function(given: Any) -> Function:
    if isinstance(given, Function):
        return given
    if isinstance(given, Worker | Shape):
        what, name = ("worker", given.name) if isinstance(given, Worker) else ("shape", given.key)
        raise FunctionInvalid(f"`tools` contains the {what} {name!r}", remedy=f"pass it in {what}s=")
    _check_native("tools", given)
    made = tool()(given)  # not `tool(given)`: None would mean no argument
    if not made.description:
        raise FunctionInvalid(
            f"the tool {made.name!r} has no docstring",
            remedy="describe in its docstring what it does: models choose tools by that",
        )
    return made


def listed(what: str, given: Iterable[T]) -> tuple[T, ...]:
    """Return the values of an argument as a tuple.

    Raises:
        InvalidArgument: It is a single value, a string or None.
    """
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return tuple(given)
    raise InvalidArgument(f"`{what}` must be a list, got {type(given).__name__!r}", remedy=f"pass {what}=[...]")


def all_models(given: Mapping[str, str | LM] | None, settings: Settings) -> dict[str, str | LM]:
    """Return the named models; those in `given` override those of the settings.

    Raises:
        InvalidArgument: A name or a model is invalid.
    """
    return check_named({**settings.models, **(given or {})})


def converse_class(given: object, fields: Sequence[tuple[str, InputField]] = ()) -> ConverseClass | None:
    """Return the class of an agent's conversation; None if it has none of its own.

    Args:
        given: A subclass of `Converse`, or None.
        fields: The inputs that capabilities fill, each with the name of its capability.

    Raises:
        FunctionInvalid: It is not a subclass of `Converse`, or one of its fields is not possible.
    """
    if given is None and not fields:
        return None
    from ..signatures.converse import ConverseClass, with_inputs  # loads dspy, which a subclass has loaded already

    further = [(of, each.name, each.type, each.description) for of, each in fields]
    return ConverseClass.of(with_inputs(given, further) if further else given)


def model_options(settings: Settings, workspace: str) -> ModelOptions:
    """Return the options of model calls for a workspace."""
    from ..signatures import ModelOptions  # loads dspy

    return ModelOptions(
        timeout=settings.model_timeout,
        attempts=settings.model_attempts,
        backoff=settings.model_backoff,
        echo=settings.echo,
        takes=settings.model_takes,
        tools=settings.model_tools,
        schemas=settings.model_schemas,
        cache_hints=settings.model_cache_hints,
        workspace=workspace,
    )


def generation_options(settings: Settings, profile: Profile) -> GenerationOptions:
    """Return the generation options of the profile, completed by those of the settings."""
    return profile.options.over(settings.model_options or GenerationOptions())


def graph_options(settings: Settings, profile: Profile) -> Callable[[ModelCaller], GraphOptions]:
    """Return the limits of a turn's graph, as a function of its model."""

    def options(caller: ModelCaller) -> GraphOptions:
        options = GraphOptions(
            max_rounds=settings.max_rounds,
            history_limit=settings.history_limit,
            history_characters=settings.history_characters or caller.history_characters,
            summaries=not caller.plain if settings.history_summaries is None else settings.history_summaries,
            attachment_fallback=settings.attachment_fallback,
            find_tools_above=settings.find_tools_above,
            reader=settings.reader,
        )
        return bounded(options, profile)

    return options


def open_usage(settings: Settings, stores: Stores, workspace: str) -> Usage:
    """Return the usage limits of turns, accounts and workspaces, with their usage so far. Attachments count there."""
    usage = Usage(
        stores.database,
        stores.clock,
        turn=Limits(calls=settings.turn_calls, tokens=settings.turn_tokens, cost=settings.turn_cost),
        account=limits_of(settings.account_limits),
        workspace=limits_of(settings.workspace_limits),
        depth=settings.turn_depth,
        chosen=None if "turn_calls" in settings.model_fields_set else DEFAULT_CHOSEN_CALLS,
        at_once=settings.turn_concurrency,
        stored={
            "account": stored_of(settings.account_limits, account=True),
            "workspace": stored_of(settings.workspace_limits, account=False),
        },
    )

    async def count(account: str, size: int) -> None:
        await usage.store(Scope(workspace=workspace, account=account), size=size)

    stores.attachments.workspace = workspace
    if usage.limits_stored:
        stores.attachments.count = count
    stores.entries.check = partial(usage.check_kept, "entries")
    stores.schedules.check = partial(usage.check_kept, "schedules")
    return usage


def turn_models(given: TurnModel) -> tuple[str, ...]:
    """Return the names in a turn's `model=`: its model, and those to try after it.

    Raises:
        InvalidArgument: They are not names.
    """
    names = (given,) if isinstance(given, str) else () if given is None else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidArgument(
            f"`model` must be a non-empty string or a list of them, got {type(given).__name__!r}",
            remedy="pass a model string or a name from WorldAgent(models=...), or a list of them",
        )
    if len(names) > MAX_TURN_MODELS or any(
        len(name) > MAX_MODEL_NAME_CHARACTERS or not is_text(name) for name in names
    ):
        raise InvalidArgument(
            f"`model` has more than {MAX_TURN_MODELS} names, or a name that is too long",
            remedy=f"pass at most {MAX_TURN_MODELS} names of at most {MAX_MODEL_NAME_CHARACTERS} characters",
        )
    return tuple(names)


def check_kinds(**given: tuple[object, type]) -> None:
    """Refuse arguments of a wrong type.

    Args:
        given: By argument name, the value, which can be None, and its type.

    Raises:
        InvalidArgument: A value is of another type.
    """
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise InvalidArgument(
                f"`{name}` must be a {kind.__name__}, got {type(value).__name__!r}",
                remedy=f"pass {kind.__name__}(...) or omit it",
            )


def check_approver(given: object) -> None:
    """Refuse an approver that is not an async callable.

    Raises:
        InvalidArgument: It is neither an async function nor an object with an async `__call__`.
    """
    if given is not None and not (iscoroutinefunction(given) or iscoroutinefunction(type(given).__call__)):
        raise InvalidArgument(
            f"`approver` must be an async function, got {type(given).__name__!r}",
            remedy="pass an async function of a pause",
        )


def check_notifier(given: object) -> None:
    """Refuse a notifier without an async method `notify`.

    Raises:
        InvalidArgument: It has no async method `notify`.
    """
    if given is not None and not iscoroutinefunction(getattr(given, "notify", None)):
        raise InvalidArgument(
            f"`notifier` must have an async method `notify(pause)`, got {type(given).__name__!r}",
            remedy="pass an object whose class defines `async def notify(self, pause)`",
        )


_REMEDY = "pass a pydantic model, another type that pydantic can validate, or a JSON Schema"


def output_type(given: Any) -> TypeAdapter[Any] | None:
    """Return the adapter that reads an answer; None if the answer is a text.

    Args:
        given: A pydantic model, any other type that has a JSON Schema, or a JSON Schema as a mapping.

    Raises:
        InvalidArgument: It has no JSON Schema.
    """
    if given is None:
        return None
    try:
        if isinstance(given, Mapping):
            return result_of("the answer", given)
        if isinstance(given, BaseModel):
            problem = "is an instance, not a type"
        elif isroutine(given):  # pydantic would describe its arguments
            problem = "is a function, not a type"
        else:
            made: TypeAdapter[Any] = TypeAdapter(given)
            made.json_schema()
            return made
    except FunctionInvalid as error:
        problem = error.problem
    except PydanticUserError as error:
        problem = f"has no JSON Schema ({type(error).__name__})"
    raise InvalidArgument(f"output= {problem}", remedy=_REMEDY)


def read_output(wanted: TypeAdapter[Any], value: Any) -> Any:
    """Return a turn's result as the type of `output=`.

    Args:
        wanted: The type.
        value: The result as JSON.

    Raises:
        InvalidArgument: The turn began with another type, and its result does not match this one.
    """
    try:
        return wanted.validate_json(canonical_json(value))  # like the answer: strict types treat JSON specially
    except ValidationError as error:
        problem = describe_failure(error)
    raise InvalidArgument(
        f"the turn's result does not match output=: {problem}", remedy="pass the output= that the turn began with"
    )


def check_said(text: object) -> None:
    """Refuse what is not the text of a message.

    Raises:
        InvalidArgument: It is not text, it is blank, or UTF-8 cannot encode it.
    """
    if not is_text(text):
        raise InvalidArgument("`text` must be a non-empty string that UTF-8 can encode", remedy="send another text")


def check_example(given: object, setting: str) -> bool:
    """Return whether a turn is begun with `example=True`.

    Args:
        given: The argument `example` of the surface.
        setting: The setting `examples`.

    Raises:
        InvalidArgument: It is not a bool, or it is True and the setting is `off`.
    """
    if not isinstance(given, bool):
        raise InvalidArgument(
            f"`example` must be True or False, got {type(given).__name__!r}",
            remedy="pass example=True to keep it",
        )
    if given and setting == "off":
        raise InvalidArgument(
            "example=True cannot keep the turn, because the setting `examples` is 'off'",
            remedy="use Settings(examples='asked'), or omit example=",
        )
    return given


GuardSetting = Literal["off", "unattended"]

Unattended = UnattendedMode | bool | None
"""`"refuse"` or `"pause"`; True is the setting `unattended`, False a turn that a person watches, None the default."""


def check_unattended(given: object, setting: UnattendedMode, *, scheduled: bool = False) -> UnattendedMode | None:
    """The mode that a turn begins with; None is attended.

    Args:
        given: The argument `unattended` of the surface.
        setting: The setting `unattended`.
        scheduled: Whether a schedule began the turn, so that it is unattended unless the caller says otherwise.

    Raises:
        InvalidArgument: It is not one of the accepted values.
    """
    if given is True or (given is None and scheduled):
        return setting
    if given is None or given is False:
        return None
    if given == "refuse" or given == "pause":
        return "refuse" if given == "refuse" else "pause"
    raise InvalidArgument(
        f"`unattended` must be 'refuse', 'pause', True, False or None, got {str(given)[:40]!r}",
        remedy="use 'refuse' where questions must be refused, or 'pause' where the turn must wait for a person",
    )


def check_guard(given: object, profile: bool | None, setting: GuardSetting, *, unattended: bool) -> bool:
    """Whether a turn that begins is guarded.

    Args:
        given: The argument `guard` of the surface.
        profile: The key `guard` of the profile.
        setting: The setting `guard`.
        unattended: Whether no person watches the turn.

    Raises:
        InvalidArgument: It is not one of the accepted values.
    """
    if given is None or isinstance(given, bool):
        chosen = profile if given is None else given
        return unattended and setting == "unattended" if chosen is None else chosen
    raise InvalidArgument(
        f"`guard` must be True, False or None, got {str(given)[:40]!r}",
        remedy="use True where no model may read what a stranger can have written, or None for the setting `guard`",
    )
