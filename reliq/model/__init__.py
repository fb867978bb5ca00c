"""Messages, queues and policies as pure values: no Redis, no I/O."""
