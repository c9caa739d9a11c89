"""YAML files that people write, read as data with the line of each key. What it must be is its reader's matter."""

from .document import LONGEST, YamlDocument, read_yaml

__all__ = ["LONGEST", "YamlDocument", "read_yaml"]
