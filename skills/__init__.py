"""Skills: packages of instructions, scripts and files in the public Agent Skills format (T6)."""

from .allowed_tools import AllowedTools, allowed_tools
from .catalogue import EXAMPLES, SkillCatalogue, SkillEntry
from .package import SkillHeader, SkillPackage, judge_header, read_package

__all__ = [
    "EXAMPLES",
    "AllowedTools",
    "SkillCatalogue",
    "SkillEntry",
    "SkillHeader",
    "SkillPackage",
    "allowed_tools",
    "judge_header",
    "read_package",
]
