"""Reads YAML files as data with the line of each key. The caller validates the data."""

from .document import LONGEST, YamlDocument, read_yaml

__all__ = ["LONGEST", "YamlDocument", "read_yaml"]
