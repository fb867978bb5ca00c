"""Writing from Spark: DataFrames and streams, and `reliq spark enqueue`."""
