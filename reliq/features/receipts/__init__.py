"""Receipts: messages that are received one by one, each invisible to others for a time of its own."""
