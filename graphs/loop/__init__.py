"""The loop of model steps and calls, for conversations and workers. The `subagent` shape runs a worker by name."""
