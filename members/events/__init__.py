"""The events of a workspace: who gets one, what it decides, and what comes of it."""
