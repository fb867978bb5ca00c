"""FIFO queues: groups in order, deduplication, sequence numbers."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.sqs.test_messages import code_of, received
from tests.support.workers import eventually

_NOT_FOR_THIS = "The request include parameter that is not valid for this queue type."


@pytest.fixture
def sqs(either):
    """Each test runs in both protocols."""
    return either


def send(sqs, url, body, group="g", **options):
    return sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **options)


def bodies(sqs, url, **options):
    return [one["Body"] for one in received(sqs, url, **options)]


def test_a_message_has_its_group_its_deduplication_id_and_a_growing_sequence_number(sqs, fifo):
    url = fifo()
    sent = [send(sqs, url, f"{at}", MessageDeduplicationId=f"d{at}") for at in range(3)]
    messages = received(sqs, url, MessageSystemAttributeNames=["All"])
    assert [one["Body"] for one in messages] == ["0", "1", "2"]
    numbers = [one["Attributes"]["SequenceNumber"] for one in messages]
    assert numbers == [one["SequenceNumber"] for one in sent]
    assert numbers == sorted(set(numbers))
    assert {len(one) for one in numbers} == {20}
    assert [one["Attributes"]["MessageDeduplicationId"] for one in messages] == ["d0", "d1", "d2"]
    assert {one["Attributes"]["MessageGroupId"] for one in messages} == {"g"}


def test_a_group_is_blocked_until_its_messages_are_deleted_or_visible(sqs, fifo):
    url = fifo()
    for at in range(3):
        send(sqs, url, f"a{at}", "a")
    send(sqs, url, "b0", "b")
    first = received(sqs, url, MaxNumberOfMessages=1)[0]
    assert bodies(sqs, url) == ["b0"]
    assert bodies(sqs, url) == []
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    again = received(sqs, url, MaxNumberOfMessages=2)
    assert [one["Body"] for one in again] == ["a0", "a1"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again[0]["ReceiptHandle"])
    assert bodies(sqs, url) == []
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again[1]["ReceiptHandle"])
    assert bodies(sqs, url) == ["a2"]


@pytest.mark.parametrize("shown", [0, 1])
def test_what_is_visible_before_the_messages_in_flight_is_received_and_nothing_after_them(sqs, fifo, shown):
    url = fifo()
    for at in range(4):
        send(sqs, url, f"{at}")
    held = received(sqs, url, MaxNumberOfMessages=3)
    for at in {shown, 2}:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=held[at]["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(sqs, url) == (["0"] if shown == 0 else [])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=held[1 - shown]["ReceiptHandle"])
    assert bodies(sqs, url) == ([] if shown == 0 else ["1", "2", "3"])


def test_a_message_that_is_extended_holds_back_those_whose_time_is_over(sqs, fifo):
    url = fifo(VisibilityTimeout="1")
    for at in range(3):
        send(sqs, url, f"{at}")
    first = received(sqs, url)[0]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=600)
    counts = ["ApproximateNumberOfMessagesNotVisible"]
    told = {"QueueUrl": url, "AttributeNames": counts}
    eventually(lambda: sqs.get_queue_attributes(**told)["Attributes"][counts[0]] == "1")
    assert bodies(sqs, url) == []
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(sqs, url) == ["0", "1", "2"]


def test_a_handle_that_expired_deletes_nothing(sqs, fifo):
    url = fifo(VisibilityTimeout="0")
    send(sqs, url, "m")
    handle = received(sqs, url)[0]["ReceiptHandle"]
    code, _, text = code_of(sqs.delete_message, QueueUrl=url, ReceiptHandle=handle)
    assert code == "InvalidParameterValue"
    assert text == f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": handle}])
    assert "Successful" not in answer
    assert answer["Failed"] == [
        {
            "Id": "a",
            "SenderFault": True,
            "Code": "ReceiptHandleIsInvalid",
            "Message": "The receipt handle has expired",
        }
    ]
    assert bodies(sqs, url) == ["m"]


@pytest.mark.parametrize("attempt", ["a" * 129, "a b", ""])
def test_an_attempt_has_1_to_128_letters_digits_and_punctuation(sqs, fifo, attempt):
    code, status, text = code_of(sqs.receive_message, QueueUrl=fifo(), ReceiveRequestAttemptId=attempt)
    assert (code, status) == ("InvalidParameterValue", 400)
    assert text.endswith("can only include alphanumeric and punctuation characters. 1 to 128 in length.")


@pytest.mark.parametrize("before", [0, 1])
def test_an_attempt_repeats_the_same_messages_and_handles(sqs, fifo, before):
    url, attempt = fifo(), "attempt-1"
    for at in range(4):
        send(sqs, url, f"{at}")
    for _ in range(before):
        for one in received(sqs, url, MaxNumberOfMessages=2):
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"], VisibilityTimeout=0)
    first, again = (received(sqs, url, MaxNumberOfMessages=2, ReceiveRequestAttemptId=attempt) for _ in range(2))
    assert [one["Body"] for one in first] == ["0", "1"]
    assert again == first
    for one in again:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    assert bodies(sqs, url) == ["2", "3"]


def test_an_attempt_whose_messages_were_extended_is_not_repeated(sqs, fifo):
    url = fifo()
    send(sqs, url, "m")
    (held,) = received(sqs, url, ReceiveRequestAttemptId="one")
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=600)
    assert received(sqs, url, ReceiveRequestAttemptId="one", VisibilityTimeout=0) == []
    assert bodies(sqs, url) == []


def test_a_changed_delay_is_that_of_the_messages_in_the_queue_too_and_keeps_their_order(sqs, fifo):
    url = fifo(DelaySeconds="600")
    entries = [{"Id": f"{at}", "MessageBody": f"{at}", "MessageGroupId": "g"} for at in range(9)]
    sqs.send_message_batch(QueueUrl=url, Entries=entries)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "900"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1"})
    send(sqs, url, "9")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    send(sqs, url, "a")
    assert bodies(sqs, url, WaitTimeSeconds=5) == [*map(str, range(9)), "9"]


def test_a_duplicate_answers_the_first_id_also_after_its_deletion_and_not_after_a_purge(sqs, fifo):
    url = fifo()
    first = send(sqs, url, "m")
    sqs.delete_message(QueueUrl=url, ReceiptHandle=received(sqs, url)[0]["ReceiptHandle"])
    again = send(sqs, url, "m")
    assert {name: again[name] for name in ("MessageId", "SequenceNumber")} == {
        name: first[name] for name in ("MessageId", "SequenceNumber")
    }
    assert bodies(sqs, url) == []
    sqs.purge_queue(QueueUrl=url)
    assert send(sqs, url, "m")["MessageId"] != first["MessageId"]
    assert bodies(sqs, url) == ["m"]


def test_deduplication_is_of_the_queue_or_of_the_group(sqs, fifo):
    whole = fifo("-q")
    assert send(sqs, whole, "m", "a")["MessageId"] == send(sqs, whole, "m", "b")["MessageId"]
    grouped = fifo("-g", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    assert send(sqs, grouped, "m", "a")["MessageId"] != send(sqs, grouped, "m", "b")["MessageId"]
    assert len(bodies(sqs, grouped)) == 2


@pytest.mark.parametrize("before", ["queue", "messageGroup"])
def test_a_changed_scope_of_deduplication_holds_a_minute_later(sqs, fifo, monkeypatch, before):
    url = fifo(DeduplicationScope=before)
    after = {"queue": "messageGroup", "messageGroup": "queue"}[before]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DeduplicationScope": after})

    def sent(name):
        return len({send(sqs, url, "m", group, MessageDeduplicationId=name)["MessageId"] for group in "ab"})

    assert sent("before") == {"queue": 1, "messageGroup": 2}[before]
    later = time.time() + 61
    monkeypatch.setattr("reliq_sqs.ids.Ids.server_now", lambda _: later)
    assert sent("later") == {"queue": 1, "messageGroup": 2}[after]


def test_groups_that_become_visible_together_come_in_the_order_of_their_first_messages(sqs, fifo):
    url = fifo()
    for body in ("a0", "b0", "b1", "c0", "a1"):
        send(sqs, url, body, body[0])
    assert bodies(sqs, url, MaxNumberOfMessages=3, VisibilityTimeout=0) == ["a0", "a1", "b0"]
    assert bodies(sqs, url, VisibilityTimeout=0) == ["c0", "a0", "a1", "b0", "b1"]


def test_a_group_whose_messages_are_deleted_comes_after_those_that_were_not_received(sqs, fifo):
    url = fifo()
    for body in ("a0", "b0", "a1", "b1", "a2", "c0"):
        send(sqs, url, body, body[0])
    for one in received(sqs, url, MaxNumberOfMessages=2):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    assert bodies(sqs, url) == ["b0", "b1", "c0", "a2"]


def test_a_deduplication_id_wins_over_the_content(sqs, fifo):
    url = fifo()
    send(sqs, url, "m", MessageDeduplicationId="a")
    send(sqs, url, "m", MessageDeduplicationId="b")
    send(sqs, url, "other", MessageDeduplicationId="b")
    assert bodies(sqs, url) == ["m", "m"]


def test_what_a_message_needs_and_what_it_may_not_have(sqs, fifo, queue):
    url, plain = fifo(), queue("-p.fifo", FifoQueue="true")
    said = code_of(sqs.send_message, QueueUrl=url, MessageBody="m")
    assert said == ("MissingParameter", 400, "The request must contain the parameter MessageGroupId.")
    assert code_of(send, sqs=sqs, url=plain, body="m") == (
        "InvalidParameterValue", 400,
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
    )  # fmt: skip
    assert code_of(send, sqs=sqs, url=url, body="m", DelaySeconds=5) == (
        "InvalidParameterValue", 400,
        f"Value 5 for parameter DelaySeconds is invalid. Reason: {_NOT_FOR_THIS}",
    )  # fmt: skip
    assert send(sqs, url, "m", DelaySeconds=0)["MessageId"]
    for wrong in ("", "x" * 129, "a b", "ä"):
        assert code_of(send, sqs=sqs, url=url, body="m", group=wrong)[0] == "InvalidParameterValue"
        said = code_of(send, sqs=sqs, url=url, body="m", MessageDeduplicationId=wrong)
        assert said[0] == "InvalidParameterValue"
        assert "1 to 128 in length" in said[2]


def test_a_standard_queue_takes_a_group_and_no_deduplication_id(sqs, queue):
    url = queue()
    send(sqs, url, "m", "tenant")
    (message,) = received(sqs, url, AttributeNames=["All"])
    assert message["Attributes"]["MessageGroupId"] == "tenant"
    said = code_of(sqs.send_message, QueueUrl=url, MessageBody="m", MessageDeduplicationId="d")
    text = f"Value d for parameter MessageDeduplicationId is invalid. Reason: {_NOT_FOR_THIS}"
    assert said == ("InvalidParameterValue", 400, text)
    said = code_of(send, sqs=sqs, url=url, body="m", group="")
    assert said[:2] == ("InvalidParameterValue", 400)
    assert said[2].startswith("Value  for parameter MessageGroupId is invalid. Reason: MessageGroupId can only")
    entries = [{"Id": "a", "MessageBody": "m", "MessageDeduplicationId": "d"}]
    (failed,) = sqs.send_message_batch(QueueUrl=url, Entries=entries)["Failed"]
    assert (failed["Code"], failed["Message"]) == ("InvalidParameterValue", _NOT_FOR_THIS.removesuffix("."))


def test_throughput_per_group_needs_deduplication_per_group(sqs, fifo):
    url, wrong = fifo(), {"DeduplicationScope": "nothing"}
    assert code_of(sqs.set_queue_attributes, QueueUrl=url, Attributes=wrong)[0] == "InvalidAttributeValue"
    per_group, by_queue = {"FifoThroughputLimit": "perMessageGroupId"}, {"DeduplicationScope": "queue"}
    why = "To set FifoThroughputLimit to perMessageGroupId, the DeduplicationScope must be messageGroup."
    refused = ("InvalidAttributeValue", 400, f"Invalid value for the parameter FifoThroughputLimit. Reason: {why}")
    assert code_of(sqs.set_queue_attributes, QueueUrl=url, Attributes=per_group) == refused
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**per_group, "DeduplicationScope": "messageGroup"})
    assert code_of(sqs.set_queue_attributes, QueueUrl=url, Attributes=by_queue) == refused


def test_fifo_is_for_good(sqs, fifo):
    url = fifo()
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"FifoQueue": "true"})
    assert code_of(sqs.set_queue_attributes, QueueUrl=url, Attributes={"FifoQueue": "false"}) == (
        "InvalidAttributeValue", 400,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    )  # fmt: skip


def test_the_sends_and_deletions_of_many_at_once_keep_the_order_of_each(sqs, fifo):
    url, senders, each = fifo(), 8, 12

    def send_all(sender):
        for at in range(each):
            send(sqs, url, f"{sender} {at}", f"g{sender}")

    def delete(message):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    found = []
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(send_all, range(senders)))
        while messages := received(sqs, url, VisibilityTimeout=600):
            found += [one["Body"].split() for one in messages]
            list(pool.map(delete, messages))
    for sender in range(senders):
        assert [at for by, at in found if by == str(sender)] == [str(at) for at in range(each)]
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    assert [counts[name] for name in names] == ["0", "0"]
