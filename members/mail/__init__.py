"""The messages of members: what they must be, whom they reach, and what wakes gateways."""
