"""The workers and models of an agent, as they come from arguments, files and settings."""

from ._choices import (
    TurnModel,
    all_models,
    all_workers,
    graph_options,
    listed,
    model_options,
    open_usage,
    turn_models,
)
from ._kinds import check_approver, check_kinds, check_notifier

__all__ = [
    "TurnModel",
    "all_models",
    "all_workers",
    "check_approver",
    "check_kinds",
    "check_notifier",
    "graph_options",
    "listed",
    "model_options",
    "open_usage",
    "turn_models",
]
