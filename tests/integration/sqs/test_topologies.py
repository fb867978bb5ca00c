"""The endpoint on Redis Cluster and on Sentinel, and two endpoints behind a balancer."""

import json
import time
from collections import defaultdict
from itertools import cycle

import pytest
from botocore.exceptions import ClientError

import reliq
from tests.integration.sqs.serving import client, own_process
from tests.integration.sqs.test_messages import received
from tests.support.cluster import Cluster
from tests.support.fleet import Fleet
from tests.support.workers import eventually

GROUPS, EACH = 12, 5


@pytest.fixture(scope="module")
def cluster():
    with Cluster(replicas=False) as cluster:
        yield cluster


def make_fifo(sqs, name, **more):
    given = {"FifoQueue": "true", "ContentBasedDeduplication": "true", **more}
    return sqs.create_queue(QueueName=f"{name}.fifo", Attributes=given)["QueueUrl"]


def send_groups(clients, url):
    """Send messages of several groups in turn, by clients in turn; return the bodies of each group."""
    sent = defaultdict(list)
    for at in range(EACH):
        for group in range(GROUPS):
            body = f"{group}-{at}"
            next(clients).send_message(QueueUrl=url, MessageBody=body, MessageGroupId=f"g{group}")
            sent[f"g{group}"].append(body)
    return sent


def drained(clients, url, count):
    """Receive and delete so many messages; return the bodies of each group in their order."""
    found: dict[str, list[str]] = defaultdict(list)
    until = time.monotonic() + 60
    while sum(map(len, found.values())) < count and time.monotonic() < until:
        sqs = next(clients)
        messages = received(sqs, url, WaitTimeSeconds=1, AttributeNames=["MessageGroupId"])
        for one in messages:
            found[one["Attributes"]["MessageGroupId"]].append(one["Body"])
        if messages:
            entries = [{"Id": f"{at}", "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(messages)]
            assert "Failed" not in sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    return found


def test_on_a_cluster_a_fifo_queue_has_its_groups_in_partitions_and_each_in_order(cluster, name):
    with own_process(cluster.url) as (_, port), reliq.Reliq(cluster.url) as app:
        sqs = client(port)
        url = make_fifo(sqs, name)
        app.queue(f"{name}.fifo").configure(partitions=4)
        sent = send_groups(cycle([sqs]), url)
        again = sqs.send_message(QueueUrl=url, MessageBody=sent["g0"][0], MessageGroupId="g0")
        assert (
            again["SequenceNumber"]
            == sqs.send_message(QueueUrl=url, MessageBody=sent["g0"][0], MessageGroupId="g0")["SequenceNumber"]
        )
        assert drained(cycle([sqs]), url, GROUPS * EACH) == sent
        assert received(sqs, url) == []


def test_on_a_cluster_dead_letters_move_and_move_back(cluster, name):
    with own_process(cluster.url) as (_, port):
        sqs = client(port)
        dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        arn = f"arn:aws:sqs:us-east-1:000000000000:{name}-dead"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="m")
        assert len(received(sqs, url, VisibilityTimeout=0)) == 1
        assert received(sqs, url) == []
        told = {"QueueUrl": dead, "AttributeNames": ["ApproximateNumberOfMessages"]}
        eventually(lambda: sqs.get_queue_attributes(**told)["Attributes"]["ApproximateNumberOfMessages"] == "1")
        sqs.start_message_move_task(SourceArn=arn)
        assert eventually(lambda: received(sqs, url, WaitTimeSeconds=1))[0]["Body"] == "m"
        sqs.purge_queue(QueueUrl=url)
        sqs.delete_queue(QueueUrl=url)
        assert sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [dead]


@pytest.mark.long
def test_after_a_failover_of_sentinel_nothing_is_lost(name):
    with Fleet() as fleet, own_process(fleet.url) as (_, port):
        sqs = client(port)
        url = make_fifo(sqs, name)
        sent = send_groups(cycle([sqs]), url)
        eventually(fleet.whole)
        fleet.fail_over("kill")

        def more():
            try:
                sqs.send_message(QueueUrl=url, MessageBody="after", MessageGroupId="after")
            except ClientError as error:
                statuses.add(error.response["ResponseMetadata"]["HTTPStatusCode"])
                return False
            return True

        statuses: set[int] = set()
        eventually(more, timeout=60)
        assert statuses <= {503}
        assert drained(cycle([sqs]), url, GROUPS * EACH + 1) == sent | {"after": ["after"]}


def test_two_endpoints_behind_a_balancer_are_one(url, name):
    with own_process(url) as (_, first), own_process(url) as (_, second):
        clients = cycle([client(first), client(second)])
        queue = make_fifo(next(clients), name).rpartition("/")[2]
        sent = send_groups(clients, queue)
        twice = [next(clients).send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="x") for _ in range(2)]
        assert twice[0]["MessageId"] == twice[1]["MessageId"]
        handle = received(next(clients), queue, MaxNumberOfMessages=1)[0]["ReceiptHandle"]
        next(clients).change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0)
        assert drained(clients, queue, GROUPS * EACH + 1) == sent | {"x": ["x"]}
