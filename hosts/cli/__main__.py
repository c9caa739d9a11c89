"""`python -m worldagent.hosts.cli`, for where the script `worldagent` is not on the path."""

from .entry import main

main()
