"""The workers and models of an agent, as they come from arguments, files and settings."""

from ._choices import all_models, all_workers, graph_options, model_options, open_models

__all__ = ["all_models", "all_workers", "graph_options", "model_options", "open_models"]
