"""Evals: runs cases against an agent, scores the answers, and compares runs. `worldagent eval` is its command."""
