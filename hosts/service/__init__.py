"""What a host does for its callers, without a transport: calls come in as values, records go out."""
