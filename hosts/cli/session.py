"""From the options of a command to the agent that they name. It opens when it is entered."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from .apps import app_agent, check_app
from .debug import DEBUG, print_original
from .hosts import EMBEDDED, check_hosts, named_host
from .options import AgentOptions, SpeakerOptions
from .output import Output
from .sources import expanded, generation, policy, workers

if TYPE_CHECKING:
    from ...agent import Settings, Thread, WorldAgent
    from ...profiles import Profile
    from ...role_resolution import RoleStore

EMBEDDED_MODEL: Final = "local"
"""The model where none is named."""

LOCAL_NOTE = (
    "note: no model is set, so the embedded one answers. It is tiny and shows wiring, not wit; "
    "set WORLDAGENT_LM or --lm to another one, such as openai/gpt-4o."
)


def open_agent(
    options: AgentOptions, output: Output, *, stderr: Literal["inherit", "discard"] = "inherit"
) -> WorldAgent:
    """Make the agent that the options ask for, or take that of `--app`; it opens when it is entered.

    Args:
        options: The command's options.
        output: Where notes go.
        stderr: What becomes of what a role host that is a program writes to standard error.

    Raises:
        UsageError: An option or a setting does not fit.
    """
    check_app(options)
    if options.app is not None:
        with _no_collecting():
            agent = app_agent(options, options.app)
            load_engine()
        return agent
    return agent_maker(options, output, stderr=stderr)(options.workspace)


def agent_maker(
    options: AgentOptions,
    output: Output,
    *,
    stderr: Literal["inherit", "discard"] = "inherit",
    host: Callable[[], RoleStore | None] | None = None,
) -> Callable[[str], WorldAgent]:
    """Read what the options name, which is no `--app`; gives what makes the agent of a workspace out of it.

    Args:
        options: The command's options, of whatever workspace.
        output: Where notes go.
        stderr: As for `open_agent`.
        host: Asked for the stored roles whenever an agent is made, where the options name no role host.

    Raises:
        UsageError: An option or a setting does not fit.
    """
    staff, tuned = workers(options.worker), generation(options)
    check_hosts(options)
    with _no_collecting():
        _begin_loading(options.lm, options.identity)
        load_engine()
        from ...agent import Roles, Settings, WorldAgent
        from ...profiles import GENERAL
        from ...storage import Storage

    settings = Settings()
    profile = _chosen_profile(options, settings, output)
    if (profile.tools is not None or profile.name != GENERAL) and not settings.tool_roots:
        settings = settings.model_copy(update={"tool_roots": [Path.cwd()]})
    if options.workers is not None:
        settings = settings.model_copy(update={"workers": expanded("--workers", options.workers)})
    if settings.model_options is not None:
        tuned = tuned.over(settings.model_options)
    settings = settings.model_copy(update={"model_options": tuned})
    lm = options.lm or settings.lm
    if lm is None:
        output.note(LOCAL_NOTE)
    named = named_host(options, settings, stderr=stderr)
    given: dict[str, Any] = {
        "identity": options.identity,
        "lm": lm or EMBEDDED_MODEL,
        "workers": staff,
        "profile": profile,
        "policy": policy(options.policy),
        "on_error": print_original if DEBUG.get() else None,
        "storage": settings.storage(Storage(home=options.home)),
        "settings": settings.model_copy(update={"role_host": EMBEDDED}) if options.role_host == EMBEDDED else settings,
    }
    return lambda workspace: WorldAgent(workspace, roles=Roles(host=named or (host() if host else None)), **given)


def load_engine() -> None:
    """Load what an agent loads as it starts, dspy and langgraph above all: here no event loop waits for that."""
    import_module("...graphs._engine", __package__)


def thread_of(agent: WorldAgent, options: SpeakerOptions, thread: str) -> Thread:
    """A thread for the account and the channel that the options name."""
    return agent.thread(thread, account=options.account, channel=options.channel)


def _chosen_profile(options: AgentOptions, settings: Settings, output: Output) -> Profile:
    """The profile that the options name, else the settings; a project's counts where its folder is trusted.

    Args:
        options: The command's options.
        settings: The settings.
        output: Where the name goes, where somebody wants to know, and the hint.

    Raises:
        ProfileInvalid: There is none of that name, or its file does not fit.
        ProfileUntrusted: It is one of a project that is not trusted.
    """
    from ...profiles import GENERAL, Profiles, find_project

    profiles = Profiles.open(settings.profiles, find_project())
    role = options.role or ""
    if len(role) <= 64 and role.isidentifier() and role in profiles:
        output.note(f"hint: {role!r} is a profile as well as a role of one word; --profile {role} starts up with it.")
    profile = profiles.get(settings.profile if options.profile is None else options.profile)
    if options.verbose and profile.name != GENERAL:
        output.note(f"profile: {profile.name}")
    return profile


def _begin_loading(lm: str | None, identity: str | None) -> None:
    """Load the embedded model's weights in a thread while the rest is imported, where it is going to be used."""
    kind, _, path = (lm or os.environ.get("WORLDAGENT_LM") or _likely()).partition(":")
    if kind == EMBEDDED_MODEL:
        from ...signatures import preload

        preload(path or None, identity=identity, keep=True)


@contextmanager
def _no_collecting() -> Generator[None, None, None]:
    """Modules that load make no garbage, and looking for it takes a third of the time they need."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # what is loaded stays, so that no collection goes through it
        gc.enable()


def _likely() -> str:
    """A guess, since reading the settings imports what the loading should run beside; a wrong one costs time only."""
    import platformdirs

    named = os.environ.get("WORLDAGENT_SETTINGS")
    folder = platformdirs.user_config_path("worldagent", appauthor=False)
    return "" if (Path(named) if named else folder / "settings.toml").exists() else "local"
