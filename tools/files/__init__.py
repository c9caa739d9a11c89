"""Files of declared folders: read, written, edited, found and searched. Nothing outside of the folders is reached."""

from .functions import file_functions
from .roots import Roots

__all__ = ["Roots", "file_functions"]
