"""Run the command line with `python -m worldagent.hosts.cli` when the script `worldagent` is not on the path."""

from .entry import main

main()
