"""What a workspace, its members and their tasks are, and where they are stored."""
