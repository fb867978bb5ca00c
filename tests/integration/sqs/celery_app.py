"""The application of docs/how-to/sqs.md, for a worker of Celery in a process of its own."""

import os
import time
from pathlib import Path

from celery import Celery

app = Celery(broker=os.environ["TEST_BROKER"])
app.conf.broker_transport_options = {"is_secure": False, "region": "us-east-1", "wait_time_seconds": 1}
app.conf.task_default_queue = os.environ["TEST_QUEUE"]
app.conf.worker_enable_remote_control = False  # SQS has no fan-out
app.conf.task_acks_late = True


@app.task
def note(path: str, text: str) -> None:
    """Note a text; `hold` is held the first time, until its worker is killed."""
    held = text == "hold" and not Path(path, text).exists()
    Path(path, text).touch()
    if held:
        time.sleep(600)
    Path(path, f"{text}-done").touch()
