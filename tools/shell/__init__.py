"""A command line for models: one command, held to a time and to its output, of which nothing is left when it ends."""

from .process import hides_host
from .shell import ShellResult, shell_function

__all__ = ["ShellResult", "hides_host", "shell_function"]
