"""`python -m worldagent.hosts.cli`, for where the script `worldagent` is not on the path."""

from ._main import main

main()
