"""The calls, one module a subject."""
