"""Staging: any number of messages are written invisibly, by Spark, then all of them become visible, or none."""
