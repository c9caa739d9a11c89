"""The names that `worldagent.society.graph` had before version 0.2.0. Each warns when it is imported."""

from ..core.lazy import lazy

__getattr__ = lazy(
    __name__.rpartition(".")[0],
    {
        "..members.graph": "as_mermaid graph_of",
    },
    moved=True,
)
