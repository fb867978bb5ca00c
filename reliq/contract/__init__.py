"""The lists of what reliq has: each option of a message and each setting of a queue is declared here, once.

Surfaces are derived from these tables: keywords of calls, the command line, HTTP, the dashboard, Spark, the outbox.
"""
