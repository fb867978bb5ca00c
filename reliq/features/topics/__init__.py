"""Topics: bindings of queues to patterns of routing keys, publishing, and broadcasts."""
