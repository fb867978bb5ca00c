"""Batches: what fails alone, and what fails all."""

import pytest

from tests.integration.sqs.test_messages import code_of, received

_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long."
)


@pytest.fixture
def sqs(either):
    """Each test runs in both protocols."""
    return either


def entries(count, body="m"):
    return [{"Id": f"id{at}", "MessageBody": f"{body}{at}"} for at in range(count)]


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ([], "EmptyBatchRequest", "There should be at least one SendMessageBatchRequestEntry in the request."),
        (
            entries(11),
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        ([{"Id": "a b", "MessageBody": "m"}], "InvalidBatchEntryId", _ID),
        ([{"Id": "", "MessageBody": "m"}], "InvalidBatchEntryId", _ID),
        ([{"Id": "i" * 81, "MessageBody": "m"}], "InvalidBatchEntryId", _ID),
        (
            [{"Id": one, "MessageBody": "m"} for one in ("a", "b", "b", "a")],
            "BatchEntryIdsNotDistinct",
            "Id b repeated.",
        ),
        (
            [{"Id": f"id{at}", "MessageBody": "m" * 120_000} for at in range(9)],
            "BatchRequestTooLong",
            "Batch requests cannot be longer than 1048576 bytes. You have sent 1080000 bytes.",
        ),
    ],
    ids=["empty", "eleven", "blank", "no id", "long id", "twice", "long"],
)
def test_a_batch_that_is_wrong_as_a_whole_sends_nothing(sqs, queue, given, code, text):
    url = queue()
    said = code_of(sqs.send_message_batch, QueueUrl=url, Entries=given)
    assert said == (f"AWS.SimpleQueueService.{code}", 400, text)
    assert received(sqs, url) == []


def test_the_errors_of_batches_are_the_classes_of_the_sdk(sqs, queue):
    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        sqs.delete_message_batch(QueueUrl=queue(), Entries=[])


def test_an_entry_fails_alone(sqs, queue):
    url = queue(MaximumMessageSize="1024")
    answer = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "good", "MessageBody": "m"},
            {"Id": "delay", "MessageBody": "m", "DelaySeconds": 901},
            {"Id": "characters", "MessageBody": "\x00"},
            {"Id": "group", "MessageBody": "m", "MessageGroupId": " "},
            {"Id": "empty", "MessageBody": ""},
            {"Id": "long", "MessageBody": "m" * 1025},
        ],
    )
    assert [one["Id"] for one in answer["Successful"]] == ["good"]
    assert {one["Id"]: (one["Code"], one["SenderFault"]) for one in answer["Failed"]} == {
        "delay": ("InvalidParameterValue", True),
        "characters": ("InvalidMessageContents", True),
        "group": ("InvalidParameterValue", True),
        "empty": ("MissingParameter", True),
        "long": ("InvalidParameterValue", True),
    }
    assert [one["Message"] for one in answer["Failed"][-3:]] == [
        "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length",
        "The request must contain the parameter SendMessageBatchRequestEntry.5.MessageBody.",
        "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.",
    ]
    assert [one["Body"] for one in received(sqs, url)] == ["m"]


def test_ten_messages_are_sent_changed_and_deleted_by_batches(sqs, queue):
    url = queue()
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries(10))
    assert len(sent["Successful"]) == 10
    assert "Failed" not in sent
    handles = [{"Id": one["Body"], "ReceiptHandle": one["ReceiptHandle"]} for one in received(sqs, url)]
    assert len(handles) == 10

    changed = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**one, "VisibilityTimeout": 0} for one in handles]
    )
    assert {one["Id"] for one in changed["Successful"]} == {f"m{at}" for at in range(10)}

    handles = [{"Id": one["Body"], "ReceiptHandle": one["ReceiptHandle"]} for one in received(sqs, url)]
    wrong = {"Id": "wrong", "ReceiptHandle": "none"}
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=[*handles[:9], wrong])
    assert len(deleted["Successful"]) == 9
    (failed,) = deleted["Failed"]
    assert failed == {
        "Id": "wrong",
        "SenderFault": True,
        "Code": "ReceiptHandleIsInvalid",
        "Message": 'The input receipt handle "none" is not a valid receipt handle.',
    }


def test_an_entry_without_a_time_and_one_with_too_much_fail_alone(sqs, http, queue):
    url = queue()
    sqs.send_message_batch(QueueUrl=url, Entries=entries(2))
    first, second = [one["ReceiptHandle"] for one in received(sqs, url)]
    form = {
        "Action": "ChangeMessageVisibilityBatch",
        "QueueUrl": url,
        "ChangeMessageVisibilityBatchRequestEntry.1.Id": "a",
        "ChangeMessageVisibilityBatchRequestEntry.1.ReceiptHandle": first,
        "ChangeMessageVisibilityBatchRequestEntry.2.Id": "b",
        "ChangeMessageVisibilityBatchRequestEntry.2.ReceiptHandle": second,
        "ChangeMessageVisibilityBatchRequestEntry.2.VisibilityTimeout": "43201",
    }
    answer = http.post("/", data=form).text
    assert answer.count("<BatchResultErrorEntry>") == 2
    assert "<Code>MissingParameter</Code>" in answer
    assert "<Code>InvalidParameterValue</Code>" in answer
    missing = "The request must contain the parameter ChangeMessageVisibilityBatchRequestEntry.1.VisibilityTimeout."
    assert f"<Message>{missing}</Message>" in answer


@pytest.mark.parametrize(
    ("action", "entry", "lacking"),
    [
        ("SendMessageBatch", {}, "SendMessageBatchRequestEntry.1.MessageBody"),
        ("DeleteMessageBatch", {}, "ReceiptHandle"),
        ("DeleteMessageBatch", {"ReceiptHandle": ""}, "ReceiptHandle"),
        ("ChangeMessageVisibilityBatch", {"VisibilityTimeout": 1}, "ReceiptHandle"),
    ],
)
def test_an_entry_that_lacks_something_fails_alone(http, queue, action, entry, lacking):
    body = {"QueueUrl": queue(), "Entries": [{"Id": "a", **entry}]}
    answer = http.post("/", json=body, headers={"x-amz-target": f"AmazonSQS.{action}"})
    (failed,) = answer.json()["Failed"]
    assert failed == {
        "Id": "a",
        "SenderFault": True,
        "Code": "MissingParameter",
        "Message": f"The request must contain the parameter {lacking}.",
    }


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"MessageGroupId": None}, "The request must contain the parameter MessageGroupId."),
        ({"MessageDeduplicationId": None}, "The queue should either have ContentBasedDeduplication enabled or "),
        ({"MessageBody": ""}, "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody."),
        ({"DelaySeconds": 3}, "Value 3 for parameter DelaySeconds is invalid. Reason: The request include parameter "),
        ({"MessageBody": "m" * 1025}, "One or more parameters are invalid. Reason: Message must be shorter than 1024 "),
    ],
    ids=["group", "deduplication", "empty", "delay", "long"],
)
def test_a_message_that_is_refused_refuses_its_fifo_batch(sqs, queue, wrong, text):
    url = queue(".fifo", FifoQueue="true", MaximumMessageSize="1024")
    good = {"Id": "a", "MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    second = {**good, "Id": "b", "MessageDeduplicationId": "e", **wrong}
    second = {name: value for name, value in second.items() if value is not None}
    code, status, said = code_of(sqs.send_message_batch, QueueUrl=url, Entries=[good, second])
    assert (code, status) == ("InvalidParameterValue", 400)
    assert said.startswith(text)
    assert received(sqs, url) == []
