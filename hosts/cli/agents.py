"""Makes the agent that the options of a command name, with the role host that keeps its roles."""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ...core.errors import InvalidArgument
from .apps import app_agent, check_app
from .command import DEBUG, print_original
from .options import AgentOptions, HostOptions, SpeakerOptions
from .output import Output
from .sources import expanded, generation, policy, text, workers

if TYPE_CHECKING:
    from ...agent import Settings, Thread, WorldAgent
    from ...mcp_client import HttpHost, StdioHost
    from ...members.data.workspace import WorkspaceConfig
    from ...profiles import Profile
    from ...role_resolution import RoleStore

TOKEN_VARIABLE: Final = "WORLDAGENT_ROLE_HOST_TOKEN"  # its name, not its value
EMBEDDED: Final = "embedded"  # as a role host: the embedded store
EMBEDDED_MODEL: Final = "local"  # the model if none is named

LOCAL_NOTE = (
    "note: no model is set, so the embedded model answers. It is tiny and only shows that everything works; "
    "set WORLDAGENT_LM or --lm to another model, such as openai/gpt-4o."
)


def open_agent(
    options: AgentOptions,
    output: Output,
    *,
    memory: bool = False,
    society: WorkspaceConfig | None = None,
    stays: bool = False,
) -> WorldAgent:
    """Make the agent that the options describe, or use the agent of `--app`. It opens when it is entered.

    Args:
        options: The command's options.
        output: Where notes go.
        memory: Whether it has memory whatever the setting says. An agent of `--app` decides itself.
        society: Its members, whose workspace it then is. An agent of `--app` decides itself.
        stays: Whether the process goes on. Another one begins no message that waits on a thread, since it would end
            before the turn.

    Raises:
        UsageError: An option or a setting is not valid.
    """
    check_app(options)
    if options.app is not None:
        with _no_collecting():
            agent = app_agent(options, options.app)
            load_engine()
    else:
        maker = agent_maker(options, output, memory=memory, society=society)
        agent = maker(options.workspace if society is None else society.id)
    from ...agent.runtime.inside import inside

    inside(agent).pending.begins = stays
    return agent


def open_shared(options: AgentOptions, output: Output, *, home_roles: bool) -> WorldAgent:
    """As `open_agent`, for a process whose turns other machines resume.

    Args:
        options: The command's options.
        output: Where notes go.
        home_roles: Whether roles and the role key can be in this home alone.

    Raises:
        SettingsInvalid: The database is on a server, and they are in this home alone.
        UsageError: An option or a setting is not valid.
    """
    from ...scheduling import check_shared

    agent = open_agent(options, output, stays=True)
    return agent if home_roles else check_shared(agent)


def agent_maker(
    options: AgentOptions,
    output: Output,
    *,
    host: Callable[[], RoleStore | None] = lambda: None,
    memory: bool = False,
    society: WorkspaceConfig | None = None,
) -> Callable[[str], WorldAgent]:
    """Read what the options name, without `--app`, and return a function that makes the agent of a workspace.

    Args:
        options: The command's options. Their workspace is not used.
        output: Where notes go.
        host: Called for the stored roles whenever an agent is made, if the options name no role host.
        memory: Whether the agent has memory whatever the setting says.
        society: The members of the agent, if it has any.

    Raises:
        UsageError: An option or a setting is not valid.
    """
    staff, tuned = workers(options.worker), generation(options)
    check_hosts(options)
    with _no_collecting():
        _begin_loading(options.lm, options.identity)
        load_engine()
        from ...agent import Roles, Settings, WorldAgent
        from ...profiles import GENERAL, find_project
        from ...skills import SkillCatalogue
        from ...storage import Storage

    settings = Settings()
    profile = _chosen_profile(options, settings, output)
    if (profile.tools is not None or profile.name != GENERAL) and not settings.tool_roots:
        settings = settings.model_copy(update={"tool_roots": [Path.cwd()]})
    if options.workers is not None:
        settings = settings.model_copy(update={"workers": expanded("--workers", options.workers)})
    if settings.model_options is not None:
        tuned = tuned.over(settings.model_options)
    settings = settings.model_copy(update={"model_options": tuned, "memory": memory or settings.memory})
    lm = options.lm or settings.lm
    if lm is None:
        output.note(LOCAL_NOTE)
    # In a chat, the standard error of a role host that is a program would run into the prompt.
    named = named_host(options, settings, stderr="discard" if output.interactive else "inherit")
    given: dict[str, Any] = {
        "identity": options.identity,
        "lm": lm or EMBEDDED_MODEL,
        "workers": staff,
        "profile": profile,
        "skills": SkillCatalogue.open(project=find_project()),
        "policy": policy(options.policy),
        "on_error": print_original if DEBUG.get() else None,
        "society": society,
        "capabilities": options.capability or (),
        "storage": settings.storage(Storage(home=options.home)),
        "settings": settings.model_copy(update={"role_host": EMBEDDED}) if options.role_host == EMBEDDED else settings,
    }
    return lambda workspace: WorldAgent(workspace, roles=Roles(host=named or host()), **given)


def load_engine() -> None:
    """Load what an agent needs to start, mainly dspy and langgraph. No event loop has to wait for it here."""
    import_module("...graphs.engine", __package__)


def thread_of(agent: WorldAgent, options: SpeakerOptions, thread: str) -> Thread:
    """A thread for the account and the channel that the options name."""
    return agent.thread(thread, account=options.account, channel=options.channel)


def _chosen_profile(options: AgentOptions, settings: Settings, output: Output) -> Profile:
    """The profile that the options name, or whose file they name, else the settings' one.

    A project's profile can be used if its folder is trusted.

    Args:
        options: The command's options.
        settings: The settings.
        output: Where hints go, a note about a file that replaces a built-in profile, and with --verbose the profile's
            name.

    Raises:
        ProfileInvalid: No profile has that name, or its file is not valid.
        ProfileUntrusted: It belongs to a project that is not trusted.
    """
    from ...profiles import GENERAL, Profiles, find_project

    profiles = Profiles.open(settings.profiles, find_project())
    role = options.role or ""
    if len(role) <= 64 and role.isidentifier() and role in profiles:
        output.note(
            f"hint: {role!r} is used as a role and is also the name of a profile; --profile {role} selects that."
        )
    name = options.profile if options.profile is not None else settings.profile or GENERAL
    is_file = os.path.basename(name) != name or name.endswith((".yaml", ".yml"))
    profile = profiles.load(Path(name).expanduser()) if is_file else profiles.get(name)
    if not is_file and (file := profiles.replacement(name)) is not None:
        output.note(f"note: the profile {name!r} is {str(file)!r}, which replaces the built-in one")
    if options.verbose and profile.name != GENERAL:
        output.note(f"profile: {profile.name}")
    return profile


def _begin_loading(lm: str | None, identity: str | None) -> None:
    """Load the embedded model's weights in a thread while the rest is imported, if the model will be used."""
    kind, _, path = (lm or os.environ.get("WORLDAGENT_LM") or _guess_model()).partition(":")
    if kind == EMBEDDED_MODEL:
        from ...signatures import preload

        preload(path or None, identity=identity, keep=True)


@contextmanager
def _no_collecting() -> Generator[None, None, None]:
    """Switch off the garbage collector, which takes a third of the time of loading modules and finds nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # modules stay loaded, so no collection needs to visit them
        gc.enable()


def _guess_model() -> str:
    """Guess the model: reading the settings would import what loads meanwhile. A wrong guess only costs time."""
    import platformdirs

    named = os.environ.get("WORLDAGENT_SETTINGS")
    folder = platformdirs.user_config_path("worldagent", appauthor=False)
    return "" if (Path(named) if named else folder / "settings.toml").exists() else "local"


# --- the role host ----------------------------------------------------------------------------------------------------


def check_hosts(options: HostOptions) -> None:
    """Refuse options that exclude each other, before anything is loaded.

    Raises:
        InvalidArgument: The options name two places, or a token without a role host.
    """
    if options.role_host is not None and options.role_host_stdio is not None:
        raise InvalidArgument(
            "--role-host and --role-host-stdio exclude each other", remedy="name one place where the roles are"
        )
    if options.token_file is not None and options.role_host in (None, EMBEDDED):
        raise InvalidArgument(
            f"{options.option_name('token_file')} is for --role-host", remedy="name the host, or omit the file"
        )


def named_host(
    options: HostOptions, settings: Settings, *, stderr: Literal["inherit", "discard"] = "inherit"
) -> HttpHost | StdioHost | None:
    """The role host that the options name; None if they name none.

    Args:
        options: The command's options.
        settings: The time limit of its calls, and the names of its tools.
        stderr: Where a host that is a program writes its standard error.

    Raises:
        InvalidArgument: The options exclude each other, or the host's address, program or token is not valid.
    """
    check_hosts(options)
    if options.role_host_stdio is not None:
        from ...mcp_client import StdioHost

        argv = _words(options.role_host_stdio)
        return StdioHost(argv, stderr=stderr, timeout=settings.role_host_timeout, tools=settings.role_host_tools)
    if options.role_host is None or options.role_host == EMBEDDED:
        return None
    from ...mcp_client import HttpHost

    token = _token(options)
    return HttpHost(options.role_host, token, timeout=settings.role_host_timeout, tools=settings.role_host_tools)


def host_of(options: HostOptions, settings: Settings) -> HttpHost | StdioHost | None:
    """The role host that the options name, else the settings; None is the embedded store.

    Raises:
        InvalidArgument: As for `named_host`.
    """
    host = named_host(options, settings)
    return host if host is not None or options.role_host == EMBEDDED else settings.host()


def _token(options: HostOptions) -> str | None:
    """The token from the file that the options name, else from the environment; None if there is none."""
    file = options.token_file
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = text(options.option_name("token_file"), f"@{file}").strip()
    if not token:
        raise InvalidArgument(f"the token file {str(file)!r} is empty", remedy="write the token into it")
    return token


def _words(command: str) -> list[str]:
    with suppress(ValueError):
        return shlex.split(command)
    raise InvalidArgument("--role-host-stdio has a quote that is not closed", remedy="quote the command as in a shell")
