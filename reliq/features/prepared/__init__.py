"""Prepared messages: sent together with a transaction of the application's own."""
