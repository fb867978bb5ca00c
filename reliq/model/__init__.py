"""What messages, queues and policies are: pure values, without Redis."""
