"""Workers as files: `NAME.worker.md`, YAML in front and instructions below (H6). What a worker is, is in `worker`."""

from .load import load_workers

__all__ = ["load_workers"]
