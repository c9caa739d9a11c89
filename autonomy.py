"""The names that `worldagent.autonomy` had before version 0.2.0. Each warns when it is imported."""

from .core.lazy import lazy

__getattr__ = lazy(
    __name__.rpartition(".")[0],
    {
        ".members": "AgentMemory AutonomousRole Gateway agent_node llm_node load_workspace",
        ".members.events.routing": "route",
    },
    moved=True,
)
