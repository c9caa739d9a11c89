"""What a profile comes to in one agent: what it can call, its instructions, its bounds."""

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
