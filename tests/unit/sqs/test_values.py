"""Names, ids, digests and what is stored of a message."""

import uuid
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq import Message
from reliq.model.keys import is_name
from reliq_sqs import checking, message_attributes, model, receipts, stored
from reliq_sqs.errors import SqsError
from reliq_sqs.ids import Ids, random_id, sequence_number
from reliq_sqs.names import Names, Place
from reliq_sqs.redrive import allows

NAMES = Names("000000000000", "us-east-1")
_NAME = st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True)
_REGION = st.sampled_from(["us-east-1", "eu-central-1", "us-gov-west-1", "ap-northeast-3"])


@given(_NAME, _REGION, st.booleans())
def test_each_queue_of_sqs_is_one_queue_of_reliq(name, region, fifo):
    place = Place(region, name[:75] + ".fifo" if fifo else name)
    queue = NAMES.queue(place)
    assert is_name(queue)
    assert NAMES.of_queue(queue) == place
    assert NAMES.of_arn(NAMES.arn(place)) == place
    assert NAMES.of_url(f"http://localhost/000000000000/{place.name}", region) == place


@given(
    _NAME, _REGION, st.sampled_from(["localhost:9324", "x.org/sqs", "sqs.eu-central-1.x.org", "sqs.us-east-1.x.org"])
)  # fmt: skip
def test_a_url_leads_to_its_queue_also_at_the_host_of_another_region(name, region, host):
    place = Place(region, name)
    assert NAMES.of_url(NAMES.url(f"https://{host}", place), NAMES.region) == place


@pytest.mark.parametrize(
    "queue",
    [
        "orders@partition.2", "orders@broadcast.a0123456789abcdef0123", "orders@eu", "orders@us-east-1", "a" * 128,
        "x@us-west-2@y",
    ],
)  # fmt: skip
def test_other_queues_of_reliq_have_no_name_in_sqs(queue):
    assert NAMES.of_queue(queue) is None


@pytest.mark.parametrize(
    "arn",
    [
        "", "arn", "arn:aws:sqs:us-east-1:111111111111:q", "arn:aws:sns:us-east-1:000000000000:q",
        "arn:aws:sqs:nowhere:000000000000:q", "arn:aws:sqs:us-east-1:000000000000:a b", "arn:aws:sqs:us-east-1:0:q:r",
    ],
)  # fmt: skip
def test_an_arn_of_something_else_names_no_queue(arn):
    assert NAMES.of_arn(arn) is None


@pytest.mark.parametrize("region", ["elasticmq", "local", "mars-1"])
def test_the_region_of_the_endpoint_may_have_any_name(region):
    names, place = Names("000000000000", region), Place(region, "orders")
    assert names.of_arn(names.arn(place)) == place


def test_ids_and_sequence_numbers_grow_also_within_a_millisecond():
    ids = Ids()
    made = [ids.new() for _ in range(20_000)]
    assert made == sorted(set(made))
    assert {uuid.UUID(one).version for one in made[:100]} == {7}
    numbers = [sequence_number(one, 0) for one in made]
    assert numbers == sorted(set(numbers))
    assert {len(one) for one in numbers} == {20}


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_ids_follow_the_clock_of_the_server(skew):
    now = [1_000_000.0]
    ids, right = Ids(lambda: now[0] + skew), Ids(lambda: now[0])
    for late in (0.3, 0.002):  # seconds until the answer is there
        asked = ids.now()
        now[0] += late
        ids.follow(int(now[0] * 1000), asked)
    first = right.new()
    now[0] += 0.01
    second = ids.new()
    now[0] += 0.01
    assert sorted([first, second, right.new()])[:2] == [first, second]


def test_a_slow_answer_changes_nothing_that_is_possible():
    ids = Ids(lambda: 1_000_000.0)
    before = ids.new()
    ids.follow(999_990_000, 999_980.0)
    assert uuid.UUID(ids.new()).int >> 80 == uuid.UUID(before).int >> 80


def test_the_id_of_a_request_is_a_uuid_of_version_4():
    made = {random_id() for _ in range(1000)}
    assert len(made) == 1000
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in made} == {(4, uuid.RFC_4122)}


def test_other_ids_count_by_the_time_of_the_send():
    first, second = (sequence_number(one, at) for one, at in (("order-1", 1_700_000_000_000), ("x", 1_700_000_000_001)))
    assert first < second
    assert len(first) == 20


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        ({"timestamp": ("Number", "1493147359900")}, "235c5c510d26fb653d073faed50ae77c"),
        ({"timestamp": ("Number.java.lang.Long", "1493147359900")}, "2e2e4876d8e0bd6b8c2c8f556831c349"),
        ({"somevalue": ("String.custom", "somevalue")}, "9e05cca738e70ff6c6041e82d5e77ef1"),
        (
            {
                "id": ("String", "453ae55e-f03b-21a6-a4b1-70c2e2e8fe71"),
                "mybin": ("Binary", "kekchebukek"),
                "timestamp": ("Number.java.lang.Long", "1603134247654"),
                "contentType": ("String", "application/json"),
            },
            "049075255ebc53fb95f7f9f3cedf3c50",
        ),
    ],
)
def test_the_digest_of_attributes_is_that_of_aws(attributes, digest):
    given = {
        name: {"DataType": kind, "BinaryValue": value.encode()}
        if kind == "Binary"
        else {"DataType": kind, "StringValue": value}
        for name, (kind, value) in attributes.items()
    }
    assert message_attributes.digest(given) == digest


_VALUES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), min_size=1, max_size=3000)
_ATTRIBUTES = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
    st.one_of(
        st.fixed_dictionaries({"DataType": st.sampled_from(["String", "String.x"]), "StringValue": _VALUES}),
        st.fixed_dictionaries({"DataType": st.just("Number"), "StringValue": st.just("-1.5e3")}),
        st.fixed_dictionaries({"DataType": st.just("Binary"), "BinaryValue": st.binary(min_size=1, max_size=9000)}),
    ),
    max_size=10,
)


class _Message:
    """What is read of a message."""

    def __init__(self, body, headers):
        self.body, self.headers = body, headers


@given(_VALUES, _ATTRIBUTES, st.sampled_from(["", "RQIA"]), st.sampled_from(["", "dedup"]))
def test_what_is_stored_is_read_again(body, attributes, sender, dedup):
    content = stored.Content(body, attributes, sender, "", dedup)
    payload, headers = stored.written(body.encode(), content)
    assert sum(len(name) + len(value.encode()) for name, value in headers.items()) < 16 * 1024
    assert stored.read(cast("Message", _Message(payload, headers))) == content


@given(st.text(max_size=80))
def test_a_text_that_is_no_handle_is_refused(text):
    with pytest.raises(SqsError, match="receipt handle"):
        receipts.read(text, "orders")


def test_a_handle_is_of_its_queue():
    handle = receipts.made("orders", "receipt", 17)
    assert receipts.read(handle, "orders") == receipts.Handle("receipt", 17)
    with pytest.raises(SqsError, match="not valid for this queue"):
        receipts.read(handle, "others")


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (None, True),
        ("no JSON", True),
        ('{"redrivePermission": "allowAll"}', True),
        ('{"redrivePermission": "denyAll"}', False),
        ('{"redrivePermission": "byQueue", "sourceQueueArns": ["arn:a"]}', True),
        ('{"redrivePermission": "byQueue", "sourceQueueArns": ["arn:b"]}', False),
    ],
)
def test_who_may_send_dead_letters(policy, allowed):
    assert allows(policy, "arn:a") == allowed


@pytest.mark.parametrize(
    ("action", "given", "name"),
    [
        ("ChangeMessageVisibility", {"QueueUrl": "q", "ReceiptHandle": "h"}, "VisibilityTimeout"),
        (
            "DeleteMessageBatch",
            {"QueueUrl": "q", "Entries": [{"ReceiptHandle": "h"}]},
            "DeleteMessageBatchRequestEntry.1.Id",
        ),
    ],
)
def test_what_is_missing_is_told_by_the_name_that_aws_has_for_it(action, given, name):
    with pytest.raises(SqsError) as raised:
        checking.checked(model.actions()[action].takes, given)
    assert raised.value.message == f"The request must contain the parameter {name}."


def test_null_in_a_map_is_refused():
    with pytest.raises(SqsError, match="Must not be null") as raised:
        checking.checked(model.actions()["TagQueue"].takes, {"QueueUrl": "q", "Tags": {"a": None}})
    assert raised.value.code == "InvalidParameterValue"


def test_null_in_a_list_is_left_out():
    given = {"QueueUrl": "q", "AttributeNames": ["All", None]}
    assert checking.checked(model.actions()["GetQueueAttributes"].takes, given)["AttributeNames"] == ["All"]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            {"": {"DataType": "String", "StringValue": "x"}},
            "The request must contain non-empty message attribute name.",
        ),
        ({"a": {"StringValue": "x"}}, "The message attribute 'a' must contain non-empty message attribute type."),
        ({"a": {}}, "The message attribute 'a' must contain non-empty message attribute value."),
        (
            {"a": {"DataType": "String"}},
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'.",
        ),
    ],
)
def test_what_an_attribute_lacks_is_said_of_its_message_which_in_a_batch_fails_alone(attributes, text):
    entries = [{"Id": "1", "MessageBody": "m", "MessageAttributes": attributes}]
    batch = checking.checked(model.actions()["SendMessageBatch"].takes, {"QueueUrl": "q", "Entries": entries})
    with pytest.raises(SqsError) as raised:
        message_attributes.checked(batch["Entries"][0]["MessageAttributes"])
    assert (raised.value.code, raised.value.message) == ("InvalidParameterValue", text)
