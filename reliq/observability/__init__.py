"""Measurements and checks: histograms, Prometheus metrics, snapshots of queues, autoscaling, doctor."""
