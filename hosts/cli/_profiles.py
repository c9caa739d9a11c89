"""For `_chat`, which still imports this name; see `profiles`."""

from .profiles import open_profiles

__all__ = ["open_profiles"]
