"""Flows: messages that wait until others are handled."""
