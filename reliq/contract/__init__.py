"""The lists of what reliq has: each option of a message, setting of a queue and counter is declared here, once.

Surfaces are derived from these tables: keywords of calls, the command line, HTTP, the dashboard, Spark, the outbox,
metrics, the audit.
"""
