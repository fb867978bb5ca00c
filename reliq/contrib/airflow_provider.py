"""What Airflow reads of every provider package, without importing Airflow."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the description of this package; Airflow finds it by the entry point `apache_airflow_provider`."""
    return {
        "package-name": "reliq-queue",
        "name": "reliq",
        "description": "Messages of reliq's queues trigger DAGs",
        "queues": ["reliq.contrib.airflow.ReliqMessageQueueProvider"],
    }
