"""Messages through boto3, which compares all digests with its own."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reliq_sqs.ids import Ids
from tests.integration.sqs.serving import client, serving
from tests.support.workers import eventually

_EMPTY = "Message (user) attribute 'a' must contain a non-empty value of type 'String'."


@pytest.fixture
def sqs(either):
    """Each test runs in both protocols."""
    return either


def received(sqs, url, **options):
    return sqs.receive_message(QueueUrl=url, **{"MaxNumberOfMessages": 10, **options}).get("Messages", [])


def code_of(call, **options):
    """The error of a call: its code, status and text."""
    with pytest.raises(ClientError) as caught:
        call(**options)
    error = caught.value.response
    return error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Message"]


def test_a_message_comes_back_with_its_body_digest_and_attributes(sqs, queue):
    url = queue()
    attributes = {
        "tenant": {"DataType": "String", "StringValue": "härz"},
        "count": {"DataType": "Number.int", "StringValue": "-4.2e3"},
        "raw": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
        "label": {"DataType": "String.custom", "StringValue": "x"},
    }

    sent = sqs.send_message(QueueUrl=url, MessageBody="hällo 😀\r\n<&>", MessageAttributes=attributes)
    (message,) = received(sqs, url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])

    assert message["MessageId"] == sent["MessageId"]
    assert message["Body"] == "hällo 😀\r\n<&>"
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["MD5OfBody"] == hashlib.md5("hällo 😀\r\n<&>".encode()).hexdigest()
    system = message["Attributes"]
    assert set(system) == {
        "SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp",
    }  # fmt: skip
    assert abs(int(system["SentTimestamp"]) - time.time() * 1000) < 60_000
    assert system["ApproximateReceiveCount"] == "1"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([], set()),
        (["All"], {"a.one", "a.two", "b", "øß"}),
        ([".*"], {"a.one", "a.two", "b", "øß"}),
        (["*"], {"a.one", "a.two", "b", "øß"}),
        (["a.*"], {"a.one", "a.two"}),
        (["b", "nothing"], {"b"}),
        (["a"], set()),
    ],
)
def test_a_receiver_chooses_attributes_by_name_and_by_beginning(sqs, queue, asked, found):
    url = queue()
    text = {"DataType": "String", "StringValue": "x"}
    attributes = dict.fromkeys(("a.one", "a.two", "b", "øß"), text)
    sqs.send_message(QueueUrl=url, MessageBody="m", MessageAttributes=attributes)

    (message,) = received(sqs, url, MessageAttributeNames=asked)

    assert set(message.get("MessageAttributes", {})) == found
    assert ("MD5OfMessageAttributes" in message) == bool(found)


def test_attributes_that_headers_have_no_room_for_come_back(sqs, queue):
    url = queue()
    attributes: dict[str, Any] = {f"a{at}": {"DataType": "String", "StringValue": "ä" * 20_000} for at in range(9)}
    attributes["b"] = {"DataType": "Binary", "BinaryValue": bytes(range(256)) * 100}
    sqs.send_message(QueueUrl=url, MessageBody="body", MessageAttributes=attributes)

    (message,) = received(sqs, url, MessageAttributeNames=["All"])

    assert message["Body"] == "body"
    assert message["MessageAttributes"] == attributes


def test_a_trace_header_is_kept_and_digested(sqs, queue):
    url = queue()
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="m", MessageSystemAttributes=trace)
    (message,) = received(sqs, url, AttributeNames=["AWSTraceHeader"])
    assert message["Attributes"] == {"AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793"}
    assert len(sent["MD5OfMessageSystemAttributes"]) == 32


def test_attributes_of_queues_among_those_of_a_receive_are_ignored(sqs, queue):
    url = queue()
    sqs.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(sqs, url, AttributeNames=["VisibilityTimeout", "ApproximateReceiveCount"])
    assert message["Attributes"] == {"ApproximateReceiveCount": "1"}
    said = code_of(sqs.receive_message, QueueUrl=url, AttributeNames=["Nothing"])
    assert said == ("InvalidAttributeName", 400, "Unknown Attribute Nothing.")


def test_system_attributes_that_do_not_exist_are_not_found(sqs, queue):
    url = queue(VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(sqs, url, MessageSystemAttributeNames=["Nothing"])
    assert set(message) == {"Body", "MD5OfBody", "MessageId", "ReceiptHandle"}
    (message,) = received(sqs, url, MessageSystemAttributeNames=["Nothing", "SenderId"])
    assert set(message["Attributes"]) == {"SenderId"}


def test_a_trace_header_of_the_request_is_that_of_the_message(sqs, queue, http):
    url, trace = queue(), "Root=1-5759e988-bd862e3fe1be46a994272793"
    form = {"Action": "SendMessage", "QueueUrl": url, "MessageBody": "m"}
    http.post("/", data=form, headers={"x-amzn-trace-id": trace})
    (message,) = received(sqs, url, AttributeNames=["All"])
    assert message["Attributes"]["AWSTraceHeader"] == trace


def test_a_body_may_have_one_mebibyte_with_its_attributes_and_not_a_byte_more(sqs, queue):
    url = queue()
    attributes = {"a": {"DataType": "String", "StringValue": "x"}}  # 1 + 6 + 1 bytes
    most = "é" * ((1_048_576 - 8) // 2)
    sqs.send_message(QueueUrl=url, MessageBody=most, MessageAttributes=attributes)
    assert received(sqs, url)[0]["Body"] == most

    code, status, text = code_of(sqs.send_message, QueueUrl=url, MessageBody=most + "x", MessageAttributes=attributes)
    assert (code, status) == ("InvalidParameterValue", 400)
    assert text == "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."


@pytest.mark.parametrize("body", ["\x00", "a\x0b", "\ufffe", "\x1f"])
def test_a_body_has_only_characters_that_xml_allows(sqs, queue, body):
    url = queue()
    assert code_of(sqs.send_message, QueueUrl=url, MessageBody=body)[:2] == ("InvalidMessageContents", 400)
    assert received(sqs, url) == []


@pytest.mark.parametrize(
    ("called", "attribute", "text"),
    [
        ("a?", {"DataType": "String", "StringValue": "x"}, "The message attribute name 'a?' is invalid."),
        ("AWS.x", {"DataType": "String", "StringValue": "x"}, "You can't use message attribute names beginning with"),
        (
            "a",
            {"DataType": "Text", "StringValue": "x"},
            "The type of message (user) attribute 'a' is invalid. You must",
        ),
        ("a", {"DataType": "String", "StringValue": ""}, _EMPTY),
        ("a", {"DataType": "String", "BinaryValue": b"x"}, _EMPTY),
        ("a", {"DataType": "String", "StringValue": "a\x00"}, "Invalid binary character '#x0' was found in the"),
        ("a", {"DataType": "Number", "StringValue": "1x"}, "Can't cast the value of message (user) attribute 'a'"),
    ],
)
def test_attributes_that_aws_refuses_are_refused_with_its_words(sqs, queue, called, attribute, text):
    url = queue()
    code, status, said = code_of(sqs.send_message, QueueUrl=url, MessageBody="m", MessageAttributes={called: attribute})
    assert (code, status) == ("InvalidParameterValue", 400)
    assert text in said


@pytest.mark.parametrize("lists", [{"StringListValues": ["x"]}, {"BinaryListValues": [b"x"]}])
def test_attributes_have_no_lists(sqs, queue, lists):
    attributes = {"a": {"DataType": "String", "StringValue": "x", **lists}}
    code, status, text = code_of(sqs.send_message, QueueUrl=queue(), MessageBody="m", MessageAttributes=attributes)
    assert (code.removeprefix("AWS.SimpleQueueService."), status) == ("UnsupportedOperation", 400)
    assert text == "Message attribute list values in SendMessage operation are not supported."


def test_a_message_has_at_most_ten_attributes(sqs, queue):
    url = queue()
    many = {f"a{at}": {"DataType": "String", "StringValue": "x"} for at in range(11)}
    code, _, text = code_of(sqs.send_message, QueueUrl=url, MessageBody="m", MessageAttributes=many)
    assert (code, text) == (
        "InvalidParameterValue",
        "Number of message attributes [11] exceeds the allowed maximum [10].",
    )


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
        ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
        ("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
        ("VisibilityTimeout", 43_201, "Must be >= 0 and <= 43200, if provided."),
    ],
)
def test_a_receive_has_the_limits_of_aws(sqs, queue, option, value, text):
    code, _, said = code_of(sqs.receive_message, QueueUrl=queue(), **{option: value})
    assert code == "InvalidParameterValue"
    assert said == f"Value {value} for parameter {option} is invalid. Reason: {text}"


def test_what_is_not_deleted_comes_back_with_another_handle_and_a_higher_count(sqs, queue):
    url = queue(VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="m")
    first, second = (received(sqs, url, AttributeNames=["All"])[0] for _ in range(2))
    assert first["MessageId"] == second["MessageId"]
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    assert [one["Attributes"]["ApproximateReceiveCount"] for one in (first, second)] == ["1", "2"]
    names = "ApproximateFirstReceiveTimestamp", "SentTimestamp"
    assert [first["Attributes"][one] for one in names] == [second["Attributes"][one] for one in names]


def test_each_message_of_a_receive_is_extended_returned_and_deleted_alone(sqs, queue):
    url = queue(VisibilityTimeout="30")
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    held = {one["Body"]: one["ReceiptHandle"] for one in received(sqs, url)}
    assert set(held) == set("abc")

    sqs.delete_message(QueueUrl=url, ReceiptHandle=held["a"])
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=held["b"], VisibilityTimeout=0)

    assert [one["Body"] for one in received(sqs, url)] == ["b"]
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "2"


def test_a_handle_that_is_none_and_one_of_another_queue_are_refused(sqs, queue):
    url, other = queue(), queue("-other")
    sqs.send_message(QueueUrl=other, MessageBody="m")
    handle = received(sqs, other)[0]["ReceiptHandle"]
    for call, more in ((sqs.delete_message, {}), (sqs.change_message_visibility, {"VisibilityTimeout": 1})):
        assert code_of(call, QueueUrl=url, ReceiptHandle="fake", **more) == (
            "ReceiptHandleIsInvalid", 404, 'The input receipt handle "fake" is not a valid receipt handle.',
        )  # fmt: skip
        assert code_of(call, QueueUrl=url, ReceiptHandle=handle, **more)[:2] == ("ReceiptHandleIsInvalid", 404)


@pytest.mark.parametrize("handle", ["", " "])
def test_an_empty_handle_is_a_missing_one(sqs, queue, handle):
    given = {"QueueUrl": queue(), "ReceiptHandle": handle}
    for call, name in (
        (sqs.delete_message, "MessageHandle"),  # as AWS calls it, here only
        (partial(sqs.change_message_visibility, VisibilityTimeout=1), "ReceiptHandle"),
    ):
        assert code_of(call, **given) == ("MissingParameter", 400, f"The request must contain the parameter {name}.")


def test_a_time_that_is_wrong_is_told_before_a_handle_that_is_wrong(sqs, queue):
    told = {"QueueUrl": queue(), "ReceiptHandle": "fake", "VisibilityTimeout": 43_201}
    assert code_of(sqs.change_message_visibility, **told)[2].endswith("between 0 and 43200.")


def test_deleting_twice_succeeds_and_changing_what_is_deleted_does_not(sqs, queue):
    url = queue()
    sqs.send_message(QueueUrl=url, MessageBody="m")
    handle = received(sqs, url)[0]["ReceiptHandle"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    code, _, text = code_of(sqs.change_message_visibility, QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=1)
    assert code == "InvalidParameterValue"
    assert text.endswith("Reason: Message does not exist or is not available for visibility timeout change.")


def test_a_handle_that_expired_on_a_standard_queue_changes_nothing(sqs, queue):
    url = queue(VisibilityTimeout="0")
    sqs.send_message(QueueUrl=url, MessageBody="m")
    handle = received(sqs, url)[0]["ReceiptHandle"]
    for _ in range(2):  # when its time is just over, and when it is ready again
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=600)
        counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
        assert counts == {"ApproximateNumberOfMessages": "1"}
    entry = {"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 600}
    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])
    assert answer["Successful"] == [{"Id": "a"}]
    assert len(received(sqs, url)) == 1


def test_the_time_in_flight_ends_after_twelve_hours_in_all(sqs, queue):
    url = queue()
    sqs.send_message(QueueUrl=url, MessageBody="m")
    told = {"QueueUrl": url, "ReceiptHandle": received(sqs, url)[0]["ReceiptHandle"]}
    sqs.change_message_visibility(VisibilityTimeout=43_100, **told)
    beyond = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]."
    for seconds, reason in ((43_200, beyond), (43_201, "VisibilityTimeout must be an integer between 0 and 43200.")):
        assert code_of(sqs.change_message_visibility, VisibilityTimeout=seconds, **told) == (
            "InvalidParameterValue", 400,
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: {reason}",
        )  # fmt: skip


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_the_time_in_flight_goes_by_the_clock_of_redis(url, queue, monkeypatch, ahead):
    """Else an endpoint an hour ahead refuses what an hour more would be too much for."""
    place, clock = queue().rsplit("/")[-1], time.time
    monkeypatch.setattr(time, "time", lambda: clock() + ahead)
    monkeypatch.setattr(Ids.__init__, "__defaults__", (time.time,))  # that of the machine when it was imported
    with serving(url) as endpoint:
        sqs = client(endpoint)
        there = sqs.get_queue_url(QueueName=place)["QueueUrl"]
        sqs.send_message(QueueUrl=there, MessageBody="m")
        told = {"QueueUrl": there, "ReceiptHandle": received(sqs, there)[0]["ReceiptHandle"]}
        sqs.change_message_visibility(VisibilityTimeout=43_100, **told)
        assert code_of(sqs.change_message_visibility, VisibilityTimeout=43_200, **told)[1] == 400


def test_a_delayed_message_is_counted_apart_and_comes_when_it_is_due(sqs, queue):
    url = queue()
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=1)
    sqs.send_message(QueueUrl=url, MessageBody="now")
    assert [one["Body"] for one in received(sqs, url)] == ["now"]
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesDelayed"] == "1"


def test_long_polls_get_the_next_messages_one_each(sqs, queue):
    url = queue()
    with ThreadPoolExecutor(20) as pool:
        polls = [pool.submit(received, sqs, url, WaitTimeSeconds=15, MaxNumberOfMessages=1) for _ in range(20)]
        for at in range(20):
            sqs.send_message(QueueUrl=url, MessageBody=f"{at}")
        bodies = [one["Body"] for poll in polls for one in poll.result(timeout=30)]
    assert sorted(map(int, bodies)) == list(range(20))


def test_a_poll_whose_client_is_gone_takes_no_message(sqs, queue, http):
    url = queue(VisibilityTimeout="600")
    with pytest.raises(Exception, match="timed out"):
        http.get("/", params={"Action": "ReceiveMessage", "QueueUrl": url, "WaitTimeSeconds": "20"}, timeout=0.5)
    sqs.send_message(QueueUrl=url, MessageBody="m")
    assert eventually(lambda: received(sqs, url, WaitTimeSeconds=1))[0]["Body"] == "m"
