"""What is measured, shown and judged: histograms, Prometheus, snapshots of queues, doctor."""
