"""Measurements and checks: histograms, Prometheus metrics, autoscaling, doctor."""
