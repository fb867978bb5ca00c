"""Connections to Redis, single, Sentinel or Cluster: the only package that imports redis-py."""
