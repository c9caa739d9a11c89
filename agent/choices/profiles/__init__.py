"""Applies a profile to one agent: its tools, its instructions, its limits."""

from .profiles import (
    allowed_tools,
    bounded,
    check_profile,
    check_skills,
    chosen_profile,
    prompt_of,
    registry_of,
    servers_of,
)

__all__ = [
    "allowed_tools",
    "bounded",
    "check_profile",
    "check_skills",
    "chosen_profile",
    "prompt_of",
    "registry_of",
    "servers_of",
]
