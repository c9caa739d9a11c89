"""A command line for models: one command with limits on its time and output, of which no process remains at the end."""

from .shell import ShellResult, hides_host, shell_function

__all__ = ["ShellResult", "hides_host", "shell_function"]
