"""What an agent starts up with, in YAML: persona, tools, memory (004). Who runs it is `agent`'s matter."""

from ._catalogue import ProfileEntry, Profiles
from ._folder import find_project
from ._profile import GENERAL, MemoryOverrides, Profile, Skills, Strategy, Verification
from ._prompt import compose
from ._tools import check_tools
from ._trust import ProjectTrust

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
