"""An agent that a chat host embeds: one per workspace, with roles that shape single calls.

This module lists the public names. Each name is loaded when it is first used, so `import worldagent` is cheap. The
folders next to this file are the subpackages, such as `worldagent.graphs`, `worldagent.harness`, `worldagent.testing`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers treat it as true; importing `typing` would be most of this module's import time

if TYPE_CHECKING:
    from .agent import Memory, Resume, Roles, Say, Settings, Skill, Task, WorldAgent
    from .core import Tier
    from .core.pauses import Answer, Approve, Happened, NotHappened, Reject, RunAgain
    from .graphs import Shape
    from .harness import Policy, ServiceTool, Trace, Worker, flow, tool
    from .harness.gate import Ceiling, Rule
    from .harness.limits import Limits
    from .role_resolution import Role
    from .storage import Storage

    __version__: str

__all__ = [
    "Answer",
    "Approve",
    "Ceiling",
    "Happened",
    "Limits",
    "Memory",
    "NotHappened",
    "Policy",
    "Reject",
    "Resume",
    "Role",
    "Roles",
    "Rule",
    "RunAgain",
    "Say",
    "ServiceTool",
    "Settings",
    "Shape",
    "Skill",
    "Storage",
    "Task",
    "Tier",
    "Trace",
    "Worker",
    "WorldAgent",
    "flow",
    "tool",
]

_FOLDERS = {
    "Answer": ".core.pauses",
    "Approve": ".core.pauses",
    "Ceiling": ".harness.gate",
    "Happened": ".core.pauses",
    "Limits": ".harness.limits",
    "Memory": ".agent",
    "NotHappened": ".core.pauses",
    "Policy": ".harness",
    "Reject": ".core.pauses",
    "Resume": ".agent",
    "Role": ".role_resolution",
    "Roles": ".agent",
    "Rule": ".harness.gate",
    "RunAgain": ".core.pauses",
    "Say": ".agent",
    "ServiceTool": ".harness",
    "Settings": ".agent",
    "Shape": ".graphs",
    "Skill": ".agent",
    "Storage": ".storage",
    "Task": ".agent",
    "Tier": ".core",
    "Trace": ".harness",
    "Worker": ".harness",
    "WorldAgent": ".agent",
    "flow": ".harness",
    "tool": ".harness",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("worldagent")
    if name not in _FOLDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_FOLDERS[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
