"""What stands in a profile's file: its keys, its errors by line, the schema for editors. Where files are is not known.

It is imported when a file is read: the models and the YAML reader take time that `general` does not need.
"""

from .keys import profile_schema
from .load import read_profile

__all__ = ["profile_schema", "read_profile"]
