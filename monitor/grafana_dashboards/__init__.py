"""The Grafana dashboards, as Python. `python -m grafana_dashboards` in the folder monitor/ writes them as JSON."""
