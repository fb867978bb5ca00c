"""The steps of every operation: what is asked of Redis, in which order, and what follows from the answers. No I/O."""
