"""Turns arguments, files and settings into the tools, workers, models and limits of an agent."""

from .choices import (
    TurnModel,
    all_models,
    all_tools,
    all_workers,
    generation_options,
    graph_options,
    listed,
    model_options,
    open_usage,
    turn_models,
)
from .kinds import check_approver, check_kinds, check_notifier
from .output import output_type, read_output

__all__ = [
    "TurnModel",
    "all_models",
    "all_tools",
    "all_workers",
    "check_approver",
    "check_kinds",
    "check_notifier",
    "generation_options",
    "graph_options",
    "listed",
    "model_options",
    "open_usage",
    "output_type",
    "read_output",
    "turn_models",
]
