"""Airflow's operator, hook and sensor of SQS, without a running Airflow; tools/sqs_programs.py runs it."""

import json
import os
import tempfile
from typing import Any

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp()
os.environ["AIRFLOW_CONN_AWS_DEFAULT"] = json.dumps(
    {
        "conn_type": "aws",
        "login": "any",
        "password": "any",
        "extra": {"region_name": "us-east-1", "endpoint_url": os.environ["SQS_ENDPOINT"]},
    }
)

from airflow.providers.amazon.aws.hooks.sqs import SqsHook
from airflow.providers.amazon.aws.operators.sqs import SqsPublishOperator
from airflow.providers.amazon.aws.sensors.sqs import SqsSensor


class Task:
    """What Airflow gives to operators: here it keeps what they push."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


hook = SqsHook()
url = hook.create_queue("airflow", {"VisibilityTimeout": "60"})["QueueUrl"]
assert hook.send_message(url, "of the hook", message_attributes={})["MessageId"]
sent = SqsPublishOperator(task_id="publish", sqs_queue=url, message_content="of the operator").execute({})
assert sent["MessageId"]

task = Task()
sensor = SqsSensor(task_id="wait", sqs_queue=url, max_messages=10, wait_time_seconds=1)
assert sensor.poke({"ti": task})
assert sorted(one["Body"] for one in task.pushed["messages"]) == ["of the hook", "of the operator"]
assert not sensor.poke({"ti": Task()}), "the sensor deletes what it has received"

counts = hook.conn.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
assert (counts["ApproximateNumberOfMessages"], counts["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")
print("airflow: all well")
