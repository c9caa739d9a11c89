"""Files of declared folders: read, write, edit, find and search. Files outside these folders cannot be reached."""

from .functions import file_functions
from .roots import Roots

__all__ = ["Roots", "file_functions"]
