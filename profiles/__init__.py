"""Profiles: the persona, tools and memory settings that an agent starts with, in YAML (P1). `agent` applies them."""

from ..harness.trust import ProjectTrust, find_project
from .catalogue import ProfileEntry, Profiles, check_tools
from .profile import GENERAL, MemoryOverrides, Profile, Skills, Strategy, Verification, compose

__all__ = [
    "GENERAL",
    "MemoryOverrides",
    "Profile",
    "ProfileEntry",
    "Profiles",
    "ProjectTrust",
    "Skills",
    "Strategy",
    "Verification",
    "check_tools",
    "compose",
    "find_project",
]
