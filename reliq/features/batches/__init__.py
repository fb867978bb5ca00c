"""Batches: messages that are counted together, so that one message follows when all of them have ended."""
