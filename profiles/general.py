"""The built-in profile `general` in code, so that an agent need not read YAML. It equals `builtin/general.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..core.generation import GenerationOptions
from .profile import GENERAL, Profile, Verification

BUILTIN_FOLDER: Final = Path(__file__).parent / "builtin"
_FILE: Final = BUILTIN_FOLDER / f"{GENERAL}.yaml"

GENERAL_PROFILE: Final = Profile(
    GENERAL,
    description="all-purpose; the agent as it is without a profile",
    verification=Verification(enabled=False),
    sources={"name": f"{_FILE}:1", "description": f"{_FILE}:2"}
    | dict.fromkeys(
        (
            "system_prompt",
            "tools",
            "sections",
            "agents_md",
            *(f"options.{name}" for name in GenerationOptions.model_fields),
            "memory.short_term_size",
            "memory.compression_threshold",
            "memory.compression_ratio",
            "memory.strategy",
            "memory.long_term_memory",
            "skills.enabled",
            "verification.max_iterations",
        ),
        "default",
    )
    | {"verification.enabled": f"{_FILE}:4"},
)
"""The profile that changes nothing (P3)."""

__all__ = ["BUILTIN_FOLDER", "GENERAL_PROFILE"]
