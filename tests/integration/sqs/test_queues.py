"""Queues: created, found, listed, described, changed, tagged, purged, deleted."""

import json
import time
from typing import Any

import pytest

from tests.integration.sqs.serving import client, serving
from tests.integration.sqs.test_messages import code_of, received

_GONE = ("AWS.SimpleQueueService.NonExistentQueue", 400, "The specified queue does not exist.")
_NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"


def attributes_of(sqs, url, *names):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names or ["All"]).get("Attributes")


def test_a_queue_has_the_defaults_of_aws(sqs, queue, name):
    found = attributes_of(sqs, queue())
    assert abs(int(found.pop("CreatedTimestamp")) - time.time()) < 60
    assert abs(int(found.pop("LastModifiedTimestamp")) - time.time()) < 60
    assert found == {
        "QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{name}",
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
    }


def test_only_the_attributes_that_are_asked_for_and_set_are_returned(sqs, queue):
    url = queue()
    assert attributes_of(sqs, url, "VisibilityTimeout", "Policy") == {"VisibilityTimeout": "30"}
    assert attributes_of(sqs, url, "Policy") is None
    assert sqs.get_queue_attributes(QueueUrl=url).get("Attributes") is None
    assert code_of(sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Policy", "x"]) == (
        "InvalidAttributeName", 400, "Unknown Attribute x.",
    )  # fmt: skip


def test_creating_a_queue_again_returns_it_unless_an_attribute_differs(sqs, queue):
    url = queue(VisibilityTimeout="40")
    assert queue(VisibilityTimeout="40") == url
    assert queue() == url
    assert queue(DelaySeconds="0") == url
    name = url.rpartition("/")[2]
    code, status, text = code_of(sqs.create_queue, QueueName=name, Attributes={"VisibilityTimeout": "41"})
    assert (code, status) == ("QueueAlreadyExists", 400)
    assert text == "A queue already exists with the same name and a different value for attribute VisibilityTimeout"


def test_a_number_is_the_same_with_zeros_before_it(either, queue):
    url = queue(VisibilityTimeout="030")
    assert queue(VisibilityTimeout="30") == url
    assert attributes_of(either, url, "VisibilityTimeout") == {"VisibilityTimeout": "30"}
    either.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "007"})
    assert attributes_of(either, url, "DelaySeconds") == {"DelaySeconds": "7"}


@pytest.mark.parametrize(("stored", "again"), [("600", "600"), ("", "300")])
def test_a_queue_without_a_key_of_kms_has_the_time_of_one(sqs, queue, stored, again):
    given = {"KmsDataKeyReusePeriodSeconds": stored} if stored else {}
    url = queue(**given)
    assert "KmsDataKeyReusePeriodSeconds" not in attributes_of(sqs, url)
    assert queue(KmsDataKeyReusePeriodSeconds=again) == url
    code, _, _ = code_of(queue, KmsDataKeyReusePeriodSeconds="900")
    assert code == "QueueAlreadyExists"


@pytest.mark.parametrize("wrong", ["", "x" * 81, "/my/test", "!@$%", "a.b", "a.fifo"])
def test_a_name_has_the_characters_of_aws(sqs, wrong):
    assert code_of(sqs.create_queue, QueueName=wrong) == ("InvalidParameterValue", 400, _NAME)


def test_no_queue_is_found_by_an_empty_name(sqs):
    assert code_of(sqs.get_queue_url, QueueName="") == (
        "InvalidParameterValue", 400,
        "Value for parameter QueueName is invalid. Reason: Must specify a queue name.",
    )  # fmt: skip


@pytest.mark.parametrize("first", ["-begins", "_begins", "9"])
def test_a_name_that_reliq_would_refuse_is_a_queue_too(sqs, first):
    url = sqs.create_queue(QueueName=first)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="m")
    assert received(sqs, url)[0]["Body"] == "m"
    assert url in sqs.list_queues(QueueNamePrefix=first)["QueueUrls"]
    sqs.delete_queue(QueueUrl=url)


def test_a_fifo_queue_needs_its_suffix(sqs, name):
    code, _, text = code_of(sqs.create_queue, QueueName=name, Attributes={"FifoQueue": "true"})
    assert code == "InvalidParameterValue"
    assert "must end with .fifo suffix" in text


@pytest.mark.parametrize(
    ("attribute", "value", "code"),
    [
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("VisibilityTimeout", "-1", "InvalidAttributeValue"),
        ("VisibilityTimeout", "x", "InvalidAttributeValue"),
        ("DelaySeconds", "901", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1023", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1048577", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "59", "InvalidAttributeValue"),
        ("ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"),
        ("KmsDataKeyReusePeriodSeconds", "59", "InvalidAttributeValue"),
        ("SqsManagedSseEnabled", "yes", "InvalidAttributeValue"),
        ("Policy", "no JSON", "InvalidAttributeValue"),
        ("FifoQueue", "false", "InvalidAttributeName"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("DeduplicationScope", "queue", "InvalidAttributeName"),
        ("FifoThroughputLimit", "perQueue", "InvalidAttributeName"),
        ("QueueArn", "arn:aws:sqs:us-east-1:000000000000:x", "InvalidAttributeName"),
        ("Nothing", "1", "InvalidAttributeName"),
    ],
)
def test_attributes_have_the_limits_of_aws(sqs, queue, name, attribute, value, code):
    text = f"Unknown Attribute {attribute}."
    if attribute in ("DeduplicationScope", "FifoThroughputLimit"):
        text = f"You can specify the {attribute} only when FifoQueue is set to true."
    if code == "InvalidAttributeValue":
        text = f"Invalid value for the parameter {attribute}."
    assert code_of(sqs.create_queue, QueueName=f"{name}-new", Attributes={attribute: value}) == (code, 400, text)
    assert code_of(sqs.set_queue_attributes, QueueUrl=queue(), Attributes={attribute: value}) == (code, 400, text)
    assert code_of(sqs.get_queue_url, QueueName=f"{name}-new") == _GONE


def test_a_changed_attribute_holds_at_once(sqs, queue):
    url = queue(VisibilityTimeout="0", DelaySeconds="900")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "600", "DelaySeconds": "0"})
    sqs.send_message(QueueUrl=url, MessageBody="m")
    assert len(received(sqs, url)) == 1
    assert received(sqs, url) == []


def test_an_empty_policy_removes_it(sqs, queue):
    statement = '{"Effect":"Allow","Principal":"*","Action":"sqs:*","Resource":"*"}'
    policy = f'{{"Version":"2012-10-17","Statement":[{statement}]}}'
    url = queue(Policy=policy)
    assert attributes_of(sqs, url, "Policy") == {"Policy": policy}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert attributes_of(sqs, url, "Policy") is None


def test_one_kind_of_encryption_replaces_the_other(sqs, queue, name):
    url = queue()
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": "alias/a"})
    assert attributes_of(sqs, url, *names) == dict(zip(names, ("alias/a", "300", "false"), strict=True))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    assert attributes_of(sqs, url, *names) == {"SqsManagedSseEnabled": "true"}
    both = {"KmsMasterKeyId": "alias/a", "SqsManagedSseEnabled": "true"}
    assert code_of(sqs.create_queue, QueueName=f"{name}-b", Attributes=both)[0] == "InvalidAttributeName"


def test_without_a_key_of_kms_a_queue_is_not_encrypted_by_sqs_again(either, queue):
    url = queue(KmsMasterKeyId="alias/a", KmsDataKeyReusePeriodSeconds="6000")
    without = {"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"}
    either.set_queue_attributes(QueueUrl=url, Attributes=without)
    attributes = attributes_of(either, url)
    assert attributes["SqsManagedSseEnabled"] == "false"
    assert not without.keys() & attributes


def test_a_flag_may_have_capitals(either, name):
    given = {"FifoQueue": "True", "ContentBasedDeduplication": "False", "SqsManagedSseEnabled": "TRUE"}
    url = either.create_queue(QueueName=f"{name}.fifo", Attributes=given)["QueueUrl"]
    assert attributes_of(either, url, *given) == {key: value.lower() for key, value in given.items()}


def test_lists_come_by_pages(sqs, name):
    urls = [sqs.create_queue(QueueName=f"{name}-{at}")["QueueUrl"] for at in range(5)]
    assert sqs.list_queues(QueueNamePrefix=name) | {"ResponseMetadata": None} == {
        "QueueUrls": urls,
        "ResponseMetadata": None,
    }
    pages = list(sqs.get_paginator("list_queues").paginate(QueueNamePrefix=name, PaginationConfig={"PageSize": 2}))
    assert [len(page["QueueUrls"]) for page in pages] == [2, 2, 1]
    assert [url for page in pages for url in page["QueueUrls"]] == urls
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=f"{name}-nothing")
    for most in (0, 1001):
        assert code_of(sqs.list_queues, MaxResults=most) == (
            "InvalidParameterValue", 400,
            "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 1000.",
        )  # fmt: skip
    said = code_of(sqs.list_queues, NextToken="?")
    assert said == ("InvalidParameterValue", 400, "Invalid or expired next token.")


def test_a_queue_that_is_not_there_is_the_error_of_every_action(sqs, queue):
    url = queue() + "-nothing"
    calls: tuple[tuple[Any, dict[str, Any]], ...] = (
        (sqs.send_message, {"MessageBody": "m"}),
        (sqs.send_message_batch, {"Entries": [{"Id": "a", "MessageBody": "m"}]}),
        (sqs.receive_message, {}),
        (sqs.delete_message, {"ReceiptHandle": "h"}),
        (sqs.change_message_visibility, {"ReceiptHandle": "h", "VisibilityTimeout": 0}),
        (sqs.get_queue_attributes, {}),
        (sqs.set_queue_attributes, {"Attributes": {"DelaySeconds": "0"}}),
        (sqs.list_queue_tags, {}),
        (sqs.tag_queue, {"Tags": {"a": "b"}}),
        (sqs.untag_queue, {"TagKeys": ["a"]}),
        (sqs.purge_queue, {}),
        (sqs.delete_queue, {}),
        (sqs.add_permission, {"Label": "a", "AWSAccountIds": ["111111111111"], "Actions": ["*"]}),
        (sqs.remove_permission, {"Label": "a"}),
        (sqs.list_dead_letter_source_queues, {}),
    )
    for call, given in calls:
        assert code_of(call, QueueUrl=url, **given) == _GONE


def test_a_queue_of_another_account_is_not_there_or_not_to_be_seen(sqs, queue, name):
    url = queue()
    assert sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="000000000000")["QueueUrl"] == url
    assert code_of(sqs.get_queue_url, QueueName=name, QueueOwnerAWSAccountId="111111111111") == (
        "AWS.SimpleQueueService.NonExistentQueue", 400,
        "The specified queue does not exist or you do not have access to it.",
    )  # fmt: skip


def test_a_bare_name_a_path_and_another_host_are_urls_too(sqs, queue, name):
    queue()
    for url in (name, f"/queue/{name}", f"/000000000000/{name}", f"https://sqs.example.com/1/{name}/"):
        sqs.send_message(QueueUrl=url, MessageBody="m")
    assert len(received(sqs, name)) == 4


@pytest.mark.parametrize("beginning", ["x/", "/", "http://h/q/", "http://sqs.eu-west-1.example/1/", "%"])
def test_a_queue_is_found_by_its_whole_name(either, queue, name, beginning):
    queue()
    assert code_of(either.get_queue_url, QueueName=f"{beginning}{name}")[:2] == _GONE[:2]


def test_queues_of_two_regions_are_two(sqs, port, queue, name):
    west, east = client(port, "us-west-2"), queue()
    url = west.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"http://127.0.0.1:{port}/queue/us-west-2/000000000000/{name}"
    assert west.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert west.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    assert attributes_of(west, url, "QueueArn") == {"QueueArn": f"arn:aws:sqs:us-west-2:000000000000:{name}"}
    sqs.send_message(QueueUrl=east, MessageBody="east")
    assert received(west, url) == received(sqs, url) == []
    west.delete_queue(QueueUrl=url)
    assert received(sqs, east)[0]["Body"] == "east"


@pytest.mark.parametrize(
    ("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("us-west-2", "aws")]
)
def test_an_arn_tells_the_partition_of_its_region(port, name, region, partition):
    sqs = client(port, region)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = f"arn:{partition}:sqs:{region}:000000000000:{name}"
    assert attributes_of(sqs, url, "QueueArn") == {"QueueArn": arn}
    sqs.add_permission(QueueUrl=url, Label="one", AWSAccountIds=["111111111111"], Actions=["*"])
    (statement,) = json.loads(attributes_of(sqs, url, "Policy")["Policy"])["Statement"]
    assert statement["Principal"] == {"AWS": f"arn:{partition}:iam::111111111111:root"}
    redrive = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})}
    source = sqs.create_queue(QueueName=f"{name}-source", Attributes=redrive)["QueueUrl"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == [source]


def test_a_url_tells_its_region(sqs, port, name):
    client(port, "us-west-2").create_queue(QueueName=name)
    hosts = ("sqs.us-west-2.example.com", "us-west-2.queue.example.com:4566")
    for url in (*(f"http://{host}/000000000000/{name}" for host in hosts), f"/queue/us-west-2/000000000000/{name}"):
        sqs.send_message(QueueUrl=url, MessageBody="m")
    assert len(received(client(port, "us-west-2"), name)) == 3


def test_tags_are_set_replaced_and_removed(sqs, name):
    url = sqs.create_queue(QueueName=name, tags={"a": "1", "b": ""})["QueueUrl"]
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "1", "b": ""}
    sqs.tag_queue(QueueUrl=url, Tags={"a": "2", "A": "3"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["b", "nothing"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "2", "A": "3"}
    many = {f"t{at}": "x" for at in range(49)}
    assert code_of(sqs.tag_queue, QueueUrl=url, Tags=many) == (
        "InvalidParameterValue", 400, f"Too many tags added for queue {name}.",
    )  # fmt: skip
    assert code_of(sqs.tag_queue, QueueUrl=url, Tags={})[0] == "MissingParameter"
    assert code_of(sqs.untag_queue, QueueUrl=url, TagKeys=[])[0] == "InvalidParameterValue"
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "2", "A": "3"}


@pytest.mark.parametrize(("tags", "which"), [({"a*": "x"}, "keys"), ({"a,b": "x"}, "keys"), ({"a": "x{}"}, "values")])
def test_tags_have_the_characters_of_aws(sqs, queue, name, tags, which):
    url = queue()
    sqs.tag_queue(QueueUrl=url, Tags={"é 1_.:/=+-@": "é 1_.:/=+-@"})
    text = f"Tag {which} may only contain unicode letters, digits, whitespace, or one of these symbols: _ . : / = + - @"
    for call, given in (
        (sqs.tag_queue, {"QueueUrl": url, "Tags": tags}),
        (sqs.create_queue, {"QueueName": f"{name}-other", "tags": tags}),
    ):
        assert code_of(call, **given) == ("InvalidParameterValue", 400, text)


def test_permissions_are_statements_of_the_policy(sqs, queue, name):
    url, arn = queue(), f"arn:aws:sqs:us-east-1:000000000000:{name}"
    sqs.add_permission(QueueUrl=url, Label="one", AWSAccountIds=["111111111111"], Actions=["*"])
    accounts = ["222222222222", "333333333333"]
    sqs.add_permission(QueueUrl=url, Label="two", AWSAccountIds=accounts, Actions=["SendMessage", "GetQueueUrl"])
    text = attributes_of(sqs, url, "Policy")["Policy"]
    policy = json.loads(text)
    assert text == json.dumps(policy, separators=(",", ":"))
    assert policy["Version"] == "2008-10-17"
    assert policy["Id"] == f"{arn}/SQSDefaultPolicy"
    assert policy["Statement"] == [
        {
            "Sid": "one",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::111111111111:root"},
            "Action": "SQS:*",
            "Resource": arn,
        },
        {
            "Sid": "two",
            "Effect": "Allow",
            "Principal": {"AWS": ["arn:aws:iam::222222222222:root", "arn:aws:iam::333333333333:root"]},
            "Action": ["SQS:SendMessage", "SQS:GetQueueUrl"],
            "Resource": arn,
        },
    ]
    again = {"QueueUrl": url, "Label": "one", "AWSAccountIds": ["111111111111"], "Actions": ["*"]}
    assert code_of(sqs.add_permission, **again)[2].endswith("Reason: Already exists.")
    unknown = {"QueueUrl": url, "Label": "x"}
    assert code_of(sqs.remove_permission, **unknown)[2].endswith("Reason: can't find label on existing policy.")
    for label in ("one", "two"):
        sqs.remove_permission(QueueUrl=url, Label=label)
    assert attributes_of(sqs, url, "Policy") is None
    assert code_of(sqs.remove_permission, **unknown)[2].endswith("Reason: can't find label.")
    assert code_of(sqs.remove_permission, QueueUrl=url, Label="")[0] == "MissingParameter"


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"Actions": []}, ("MissingParameter", 400), "The request must contain the parameter Actions."),
        ({"Actions": ["DeleteQueue"]}, ("InvalidParameterValue", 400), "Only the queue owner is allowed to invoke"),
        ({"Actions": ["Nothing"]}, ("InvalidParameterValue", 400), "valid actions"),
        ({"Actions": ["SendMessage"] * 8}, ("OverLimit", 403), "8 Actions were found, maximum allowed is 7."),
        ({"AWSAccountIds": []}, ("InvalidParameterValue", 400), "for parameter PrincipalId is invalid"),
        ({"AWSAccountIds": ["1"]}, ("InvalidParameterValue", 400), "Value [1] for parameter PrincipalId is invalid"),
        ({"Label": "a b"}, ("InvalidParameterValue", 400), "for parameter Label is invalid"),
        ({"Label": ""}, ("MissingParameter", 400), "The request must contain the parameter Label."),
    ],
)
def test_a_permission_that_is_wrong_is_refused(sqs, queue, change, code, text):
    given = {"Label": "a", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"], **change}
    said = code_of(sqs.add_permission, QueueUrl=queue(), **given)
    assert said[:2] == code
    assert text in said[2]


def test_a_purge_removes_what_is_ready_delayed_and_in_flight(sqs, queue):
    url = queue()
    for body, delay in (("held", 0), ("ready", 0), ("delayed", 60)):
        sqs.send_message(QueueUrl=url, MessageBody=body, DelaySeconds=delay)
    (held,) = received(sqs, url, MaxNumberOfMessages=1)
    sqs.purge_queue(QueueUrl=url)
    counts = attributes_of(sqs, url)
    assert [value for name, value in counts.items() if name.startswith("Approximate")] == ["0", "0", "0"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])
    sqs.purge_queue(QueueUrl=url)


def test_a_queue_made_again_is_empty_and_works_at_once(sqs, queue):
    for _ in range(3):
        url = queue(VisibilityTimeout="40")
        assert attributes_of(sqs, url, "ApproximateNumberOfMessages") == {"ApproximateNumberOfMessages": "0"}
        sqs.send_message(QueueUrl=url, MessageBody="m")
        assert [one["Body"] for one in received(sqs, url)] == ["m"]
        sqs.delete_queue(QueueUrl=url)
        assert code_of(sqs.get_queue_url, QueueName=url.rpartition("/")[2]) == _GONE


def test_with_strict_timing_a_name_and_a_purge_wait_for_a_minute(url, name):
    with serving(url, strict_timing=True) as port:
        sqs = client(port)
        there = sqs.create_queue(QueueName=name)["QueueUrl"]
        sqs.purge_queue(QueueUrl=there)
        assert code_of(sqs.purge_queue, QueueUrl=there) == (
            "AWS.SimpleQueueService.PurgeQueueInProgress", 403,
            f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
        )  # fmt: skip
        sqs.delete_queue(QueueUrl=there)
        assert code_of(sqs.create_queue, QueueName=name)[:2] == (
            "AWS.SimpleQueueService.QueueDeletedRecently", 400,
        )  # fmt: skip


def test_urls_begin_as_the_client_reaches_the_endpoint_or_as_configured(url, sqs, queue, port, name):
    assert queue() == f"http://127.0.0.1:{port}/000000000000/{name}"
    with serving(url, endpoint_url="https://sqs.example.com/", account="123456789012") as other:
        made = client(other).create_queue(QueueName=name)["QueueUrl"]
    assert made == f"https://sqs.example.com/123456789012/{name}"
