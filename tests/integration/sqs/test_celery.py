"""Celery with `sqs://`: a worker of its own, killed in the middle, and another one that goes on."""

import pytest

from tests.integration.sqs.serving import client, own_process
from tests.support.workers import eventually

pytest.importorskip("pycurl", reason="kombu's transport for SQS needs it")


def test_tasks_run_also_those_that_a_killed_worker_held(url, name, tmp_path, monkeypatch):
    from tests.integration.celery.workers import working

    with own_process(url) as (_, port):
        broker = f"sqs://any:any@127.0.0.1:{port}"
        monkeypatch.setenv("TEST_BROKER", broker)
        monkeypatch.setenv("TEST_QUEUE", name)
        from tests.integration.sqs.celery_app import note

        client(port).create_queue(QueueName=name, Attributes={"VisibilityTimeout": "3"})
        texts, app = ("a", "hold", "b"), "tests.integration.sqs.celery_app"
        for text in texts:
            note.delay(str(tmp_path), text)
        with working(broker, "-P", "solo", app=app) as worker:
            eventually((tmp_path / "hold").exists, timeout=60)
            worker.process.kill()
            worker.process.wait()
        with working(broker, "-P", "solo", app=app):
            eventually(lambda: all((tmp_path / f"{text}-done").exists() for text in texts), timeout=60)
