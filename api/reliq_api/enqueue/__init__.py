"""Enqueueing over HTTP."""
