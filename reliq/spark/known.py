"""The sessions that this process has registered, by their names."""

from reliq.spark.options import Given

SESSION = "spark.reliq.session"  #: the setting with the name; clones that Spark makes of a session have the same
servers: dict[str, Given] = {}  #: where the reads and writes of each session go by default
