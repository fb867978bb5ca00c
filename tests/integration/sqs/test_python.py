"""What an SDK sends, a Python worker handles, and the other way round."""

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

from reliq.model.keys import QueueKeys
from reliq_sqs import registry
from tests.integration.sqs.serving import client as client_of
from tests.integration.sqs.serving import serving
from tests.integration.sqs.test_messages import received
from tests.support.workers import eventually, working


def test_a_worker_handles_what_an_sdk_sends_with_its_attributes_as_headers(sqs, queue, app, name):
    url, handled = queue(), []

    @app.handler(name)
    def handle(message):
        handled.append((message.body, message.headers["tenant"], message.id))

    sent = sqs.send_message(
        QueueUrl=url, MessageBody="hällo", MessageAttributes={"tenant": {"DataType": "String", "StringValue": "ä"}}
    )
    with working(app):
        eventually(lambda: handled)
    assert handled == [("hällo".encode(), "ä", sent["MessageId"])]
    assert received(sqs, url) == []


def test_an_sdk_receives_what_python_sends_with_its_headers_as_attributes(sqs, app, name):
    identity = app.queue(name).send({"n": 1}, headers={"tenant": "ä", "no attribute": "x"}, key="k")
    (message,) = received(sqs, name, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert message["MessageId"] == identity
    assert message["Body"] == '{"n":1}'
    assert message["MessageAttributes"] == {"tenant": {"DataType": "String", "StringValue": "ä"}}
    assert message["Attributes"]["MessageGroupId"] == "k"
    sqs.delete_message(QueueUrl=name, ReceiptHandle=message["ReceiptHandle"])
    assert app.queue(name).stats().processing == 0


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a\x00b", "\ufffe".encode()])
def test_a_body_that_is_no_text_of_sqs_comes_as_base64_and_says_so(sqs, app, name, body):
    app.queue(name).send(body)
    (message,) = received(sqs, name, MessageAttributeNames=["All"])
    assert base64.b64decode(message["Body"]) == body
    assert message["MessageAttributes"]["reliq-body-encoding"]["StringValue"] == "base64"


@pytest.mark.parametrize(
    "header", ["no JSON", "[]", '{"attributes": {"a": ["Binary", "?"]}}', '{"attributes": 1}', "\x00"]
)
@pytest.mark.parametrize("name_of_header", ["sqs", "sqs-envelope"])
def test_headers_of_the_endpoint_that_somebody_else_wrote_hide_no_message(sqs, app, name, name_of_header, header):
    app.queue(name).send("body", headers={name_of_header: header})
    (message,) = received(sqs, name, MessageAttributeNames=["All"], AttributeNames=["All"])
    assert message["Body"] == "body"


def test_a_queue_made_by_python_has_the_defaults_and_may_be_created_and_changed(sqs, app, name):
    app.queue(name).send("m")
    attributes = sqs.get_queue_attributes(QueueUrl=name, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "30"
    assert attributes["ApproximateNumberOfMessages"] == "1"
    sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "77"})
    attributes = sqs.get_queue_attributes(QueueUrl=name, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "77"
    assert attributes["ApproximateNumberOfMessages"] == "1"


def test_a_deleted_queue_is_gone_for_python_too(sqs, queue, app, name):
    url = queue()
    sqs.send_message(QueueUrl=url, MessageBody="m")
    assert name in app.queues()
    sqs.delete_queue(QueueUrl=url)
    assert name not in app.queues()


def test_a_receive_that_waits_does_not_bring_back_a_deleted_queue(sqs, queue, app, name, client):
    url = queue()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(received, sqs, url, WaitTimeSeconds=5)
        eventually(lambda: client.exists(QueueKeys(name).consumers))
        sqs.delete_queue(QueueUrl=url)
        assert waiting.result() == []
    assert name not in app.queues()
    assert not client.keys(f"*{name}*")


def test_what_another_endpoint_accepts_after_a_deletion_is_in_a_new_queue(sqs, queue, app, name, url, monkeypatch):
    """It remembers the queue for a while."""
    monkeypatch.setattr(registry, "_REMEMBERED", 2.0)
    with serving(url) as port:
        other, address = client_of(port), queue()
        other.send_message(QueueUrl=address, MessageBody="before")
        sqs.delete_queue(QueueUrl=address)
        other.send_message(QueueUrl=address, MessageBody="late")
        assert name not in app.queues()
        eventually(lambda: name in app.queues())
        assert app.queue(name).stats().ready == 1


def test_groups_of_a_standard_queue_take_turns(sqs, queue, app, name):
    url = queue()
    for at in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=f"noisy{at}", MessageGroupId="noisy")
    sqs.send_message(QueueUrl=url, MessageBody="quiet", MessageGroupId="quiet")
    assert app.queue(name).config().fair
    assert "quiet" in [one["Body"] for one in received(sqs, url, MaxNumberOfMessages=5)]


def test_a_message_has_the_retention_of_its_queue(sqs, queue, app, name):
    url = queue(MessageRetentionPeriod="60")
    sqs.send_message(QueueUrl=url, MessageBody="m")
    with app.queue(name).consumer() as consumer:
        (message,) = consumer.claim(10)
    assert round((message.expires_at - message.enqueued_at) / 1000) == 60
