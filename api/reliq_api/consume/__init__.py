"""Consuming over HTTP: leases, and the polls that wait for messages."""
