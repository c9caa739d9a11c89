"""The names that `worldagent.society.nats` had before version 0.2.0. Each warns when it is imported."""

from ..core.lazy import lazy

__getattr__ = lazy(
    __name__.rpartition(".")[0],
    {
        "..members.mail.nats": "event_subject",
    },
    moved=True,
)
