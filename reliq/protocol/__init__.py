"""The steps of every operation: the requests to Redis, their order, and what follows from the answers. No I/O."""
