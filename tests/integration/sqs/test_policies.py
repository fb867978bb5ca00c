"""Attributes that are JSON: how they are stored, and a queue that is created again with them or with tags."""

import json

import pytest

from tests.integration.sqs.test_messages import code_of
from tests.integration.sqs.test_queues import attributes_of

_STATEMENT = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*", "Sid": 'a  "b" \\'}


@pytest.fixture
def sqs(either):
    """Each test runs in both protocols."""
    return either


def arn_of(sqs, url):
    return attributes_of(sqs, url, "QueueArn")["QueueArn"]


def test_json_is_returned_without_blanks_and_its_texts_as_they_are(sqs, queue):
    source = arn_of(sqs, queue())
    policy = {"Version": "2012-10-17", "Id": "ü  é", "Statement": [_STATEMENT]}
    allowed = {"redrivePermission": "byQueue", "sourceQueueArns": [source]}
    url = queue("-a", Policy=json.dumps(policy, indent=2, ensure_ascii=False))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedriveAllowPolicy": json.dumps(allowed, indent=1)})
    assert attributes_of(sqs, url, "Policy", "RedriveAllowPolicy") == {
        "Policy": json.dumps(policy, separators=(",", ":"), ensure_ascii=False),
        "RedriveAllowPolicy": json.dumps(allowed, separators=(",", ":")),
    }


def test_a_redrive_policy_is_the_same_in_whatever_order_and_with_whatever_blanks(sqs, queue, name):
    arn = arn_of(sqs, queue("-dead"))
    url = queue(RedrivePolicy=json.dumps({"maxReceiveCount": "3", "deadLetterTargetArn": arn}, indent=2))
    assert attributes_of(sqs, url, "RedrivePolicy") == {
        "RedrivePolicy": f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":3}}',
    }
    again = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})}
    assert sqs.create_queue(QueueName=name, Attributes=again)["QueueUrl"] == url


def test_a_policy_without_a_version_has_the_first_one(sqs, queue):
    url = queue(Policy=json.dumps({"Statement": [_STATEMENT]}))
    policy = json.loads(attributes_of(sqs, url, "Policy")["Policy"])
    assert policy == {"Version": "2008-10-17", "Statement": [_STATEMENT]}


@pytest.mark.parametrize("statement", [None, [], {}, "x", ["x"], [{}, 1]])
def test_a_policy_has_statements(sqs, queue, statement):
    policy = {"Version": "2012-10-17"} if statement is None else {"Version": "2012-10-17", "Statement": statement}
    assert code_of(sqs.set_queue_attributes, QueueUrl=queue(), Attributes={"Policy": json.dumps(policy)}) == (
        "InvalidAttributeValue", 400, "Invalid value for the parameter Policy.",
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"Version": "2015-01-01"},
        {"Version": 20121017},
        {"Statements": []},
        {"Statement": [{**_STATEMENT, "Effect": "Perhaps"}]},
        {"Statement": [{**_STATEMENT, "Resources": "*"}]},
        {"Statement": {"Principal": "*", "Action": "*"}},
    ],
    ids=str,
)
def test_a_policy_has_the_grammar_of_iam(sqs, queue, change):
    policy = {"Version": "2012-10-17", "Statement": [_STATEMENT], **change}
    assert code_of(sqs.set_queue_attributes, QueueUrl=queue(), Attributes={"Policy": json.dumps(policy)}) == (
        "InvalidAttributeValue", 400, "Invalid value for the parameter Policy.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fits", "beyond", "text"),
    [
        (
            [_STATEMENT] * 20,
            [_STATEMENT] * 22,
            "22 statements were found in the submitted policy, max allowed is 20",
        ),
        (
            {**_STATEMENT, "Action": ["sqs:SendMessage"] * 7},
            {**_STATEMENT, "Action": ["sqs:SendMessage"] * 10},
            "10 actions were found in a statement from the submitted policy, max allowed is 7",
        ),
        (
            {**_STATEMENT, "Sid": "s" * 8000},
            {**_STATEMENT, "Sid": "s" * 8100},
            "Submitted policy is over max allowed size.",
        ),
    ],
    ids=["statements", "actions", "bytes"],
)
def test_a_policy_has_the_limits_of_aws(sqs, queue, name, fits, beyond, text):
    url = queue(Policy=json.dumps({"Version": "2012-10-17", "Statement": fits}, indent=4))
    wrong = {"Policy": json.dumps({"Version": "2012-10-17", "Statement": beyond})}
    assert code_of(sqs.set_queue_attributes, QueueUrl=url, Attributes=wrong) == ("OverLimit", 403, text)
    assert code_of(sqs.create_queue, QueueName=f"{name}-other", Attributes=wrong) == ("OverLimit", 403, text)


def test_a_permission_that_is_one_too_many_is_refused(sqs, queue):
    url = queue(Policy=json.dumps({"Version": "2012-10-17", "Statement": [_STATEMENT] * 20}))
    before = attributes_of(sqs, url, "Policy")
    given = {"Label": "a", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    assert code_of(sqs.add_permission, QueueUrl=url, **given) == (
        "OverLimit", 403, "21 Statements were found, maximum allowed is 20.",
    )  # fmt: skip
    assert attributes_of(sqs, url, "Policy") == before


@pytest.mark.parametrize("text", ["no JSON", "[1]", " ", "4"])
def test_a_redrive_policy_that_is_no_map_is_a_wrong_value(sqs, name, text):
    assert code_of(sqs.create_queue, QueueName=name, Attributes={"RedrivePolicy": text}) == (
        "InvalidAttributeValue", 400,
        "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid JSON map.",
    )  # fmt: skip


@pytest.mark.parametrize("tags", [{"a": "2"}, {"b": "1"}, {"a": "1", "b": "1"}])
def test_a_queue_is_not_created_again_with_other_tags(sqs, name, tags):
    url = sqs.create_queue(QueueName=name, tags={"a": "1"})["QueueUrl"]
    assert sqs.create_queue(QueueName=name, tags={"a": "1"})["QueueUrl"] == url
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == url
    code, status, text = code_of(sqs.create_queue, QueueName=name, tags=tags)
    assert (code, status) == ("QueueAlreadyExists", 400)
    assert text == "A queue already exists with the same name and a different value for tags"
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "1"}
