"""`--profile NAME`: which profile an agent starts up with, and a hint to those who give its name as a role (P4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...profiles import GENERAL, Profile, Profiles, find_project
from .options import AgentOptions
from .output import Output

if TYPE_CHECKING:
    from ...agent import Settings


def chosen_profile(options: AgentOptions, settings: Settings, output: Output) -> Profile:
    """The profile that the options name, else the settings; a project's counts where its folder is trusted.

    Args:
        options: The command's options.
        settings: The settings.
        output: Where the name goes, where somebody wants to know, and the hint.

    Raises:
        ProfileInvalid: There is none of that name, or its file does not fit.
        ProfileUntrusted: It is one of a project that is not trusted.
    """
    profiles = Profiles.open(settings.profiles, find_project())
    role = options.role or ""
    if len(role) <= 64 and role.isidentifier() and role in profiles:
        output.note(f"hint: {role!r} is a profile as well as a role of one word; --profile {role} starts up with it.")
    profile = profiles.get(settings.profile if options.profile is None else options.profile)
    if options.verbose and profile.name != GENERAL:
        output.note(f"profile: {profile.name}")
    return profile


__all__ = ["chosen_profile"]
