"""Tracking: where a message is, what became of it, and its cancellation."""
