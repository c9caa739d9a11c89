"""Reads the content of a profile's file: its keys, its errors by line, and the schema for editors. It opens no file.

It is imported only to read a file. The models and the YAML reader take time to load, and `general` does not need them.
"""

from .keys import profile_schema
from .load import read_profile

__all__ = ["profile_schema", "read_profile"]
