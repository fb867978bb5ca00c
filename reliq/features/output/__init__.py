"""Output: chunks that a handler emits while it runs, and that others read meanwhile and afterwards."""
