"""While Redis is away, an SDK is told so with an error that it repeats."""

import httpx
import pytest
from botocore.exceptions import ClientError
from redis import Redis

from reliq.embedded import EmbeddedRedis
from tests.integration.sqs.serving import client, serving
from tests.integration.sqs.test_messages import code_of, received
from tests.support.workers import eventually


@pytest.fixture
def own_redis(tmp_path):
    with EmbeddedRedis(tmp_path) as redis:
        yield redis


def test_what_was_sent_is_there_after_a_restart_and_errors_say_what_was_done(own_redis, name):
    with serving(own_redis.url, send_timeout=0.5) as port:
        sqs = client(port)
        url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="before")
        own_redis.stop()
        code, status, text = code_of(sqs.send_message, QueueUrl=url, MessageBody="meanwhile")
        assert (code, status) == ("ServiceUnavailable", 503)
        assert "nothing was changed" in text or "may have been carried out" in text
        own_redis.start()
        (message,) = eventually(lambda: _received(sqs, url))
        assert message["Body"] == "before"
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_the_process_is_healthy_while_redis_is_away_and_says_it_in_one_line(own_redis, caplog):
    with serving(own_redis.url) as port:
        own_redis.stop()
        eventually(lambda: "move tasks: Redis at" in caplog.text)
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        own_redis.start()
        eventually(lambda: "move tasks: works again after" in caplog.text)
    said = [one.message for one in caplog.records if one.name == "reliq.sqs" and "move tasks" in one.message]
    assert said[0].startswith("move tasks: Redis at redis://127.0.0.1:")
    assert len(said) == 2
    assert "it starts again" not in caplog.text


def _received(sqs, url):
    try:
        return received(sqs, url)
    except ClientError:
        return []


def test_a_redis_that_is_nearly_full_refuses_sends_and_not_receives(own_redis, name):
    with serving(own_redis.url, memory_watermark=0.000001) as port:
        sqs = client(port)
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        _limit(own_redis)
        eventually(lambda: code_or_none(sqs, url) == "ServiceUnavailable")
        assert received(sqs, url) is not None


def _limit(redis):
    with Redis(port=redis.port) as direct:
        direct.config_set("maxmemory", "1gb")


def code_or_none(sqs, url):
    try:
        sqs.send_message(QueueUrl=url, MessageBody="m")
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None
