"""Dead letter queues and the tasks that move their messages on."""

import asyncio
import json
import time

import pytest

import reliq
from reliq import aio
from reliq.ops import one
from reliq.ops import sqs as ops_of_sqs
from reliq_api.background import Background
from reliq_sqs import moves, queues
from reliq_sqs.names import Names
from reliq_sqs.registry import Registry
from tests.integration.sqs.serving import client as client_of
from tests.integration.sqs.serving import own_process
from tests.integration.sqs.test_messages import code_of, received
from tests.support.turns import Monitor
from tests.support.workers import eventually

_EAST = "us-east-1"


def arn_of(sqs, url):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return found["Attributes"]["QueueArn"]


def policy(arn, receives=1):
    return json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": receives}, separators=(",", ":"))


@pytest.fixture
def pair(sqs, queue):
    """A dead letter queue and a queue whose messages go there after two receives."""

    def make(suffix="", **attributes):
        dead = queue(f"-dead{suffix}", **attributes)
        source = queue(f"-source{suffix}", RedrivePolicy=policy(arn_of(sqs, dead), 2), **attributes)
        return dead, source

    return make


def let_die(sqs, source, *bodies, **options):
    """Send messages and receive them until they are dead."""
    for body in bodies:
        sqs.send_message(QueueUrl=source, MessageBody=body, **options)
    for _ in range(2):
        assert len(received(sqs, source, VisibilityTimeout=0)) == len(bodies)
    assert received(sqs, source) == []


def test_a_message_received_too_often_moves_with_its_id_attributes_and_times(sqs, pair):
    dead, source = pair()
    text = {"a": {"DataType": "String", "StringValue": "x"}, "n": {"DataType": "Number", "StringValue": "1"}}
    sent = sqs.send_message(QueueUrl=source, MessageBody="m", MessageAttributes=text)
    first = received(sqs, source, VisibilityTimeout=0, AttributeNames=["All"])[0]
    assert len(received(sqs, source, VisibilityTimeout=0)) == 1
    assert received(sqs, source) == []

    (message,) = received(sqs, dead, WaitTimeSeconds=5, AttributeNames=["All"], MessageAttributeNames=["All"])

    assert message["MessageId"] == sent["MessageId"]
    assert message["Body"] == "m"
    assert message["MessageAttributes"] == text
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, source)
    assert message["Attributes"]["SentTimestamp"] == first["Attributes"]["SentTimestamp"]


def test_a_deleted_dead_letter_queue_does_not_come_back_by_a_receive(sqs, pair):
    dead, source = pair()
    sqs.send_message(QueueUrl=source, MessageBody="m")
    sqs.delete_queue(QueueUrl=dead)
    for _ in range(3):
        assert [one["Body"] for one in received(sqs, source, VisibilityTimeout=0)] == ["m"]
    assert sqs.list_queues(QueueNamePrefix=dead.rsplit("/", 1)[1]).get("QueueUrls", []) == []

    again = dead.rsplit("/", 1)[1]
    sqs.create_queue(QueueName=again)
    assert received(sqs, source) == []
    assert [one["Body"] for one in received(sqs, dead, WaitTimeSeconds=5)] == ["m"]


def test_a_deleted_dead_letter_queue_does_not_come_back_by_a_worker(sqs, pair, app, name):
    dead, source = pair()
    sqs.send_message(QueueUrl=source, MessageBody="m")
    sqs.delete_queue(QueueUrl=dead)
    queue = app.queue(f"{name}-source")
    with queue.consumer() as consumer:
        (message,) = consumer.claim(wait=5)
        consumer.dead(message, "broken")
    monitor = Monitor(app.store)
    assert monitor.forward() == 0
    assert f"{name}-dead" not in app.queues()
    assert queue.stats().dead == 1

    sqs.create_queue(QueueName=f"{name}-dead")
    monitor.forward()  # or that of the endpoint
    assert [one["Body"] for one in received(sqs, dead, WaitTimeSeconds=5)] == ["m"]
    eventually(lambda: queue.stats().dead == 0)


def test_the_sources_of_a_dead_letter_queue_are_listed(sqs, pair):
    dead, source = pair()
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [source]
    assert sqs.list_dead_letter_source_queues(QueueUrl=source)["queueUrls"] == []
    sqs.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": ""})
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == []


def test_of_two_changes_at_once_the_policy_that_is_told_is_the_one_that_holds(sqs, queue, app, name, monkeypatch):
    source, targets = queue("-source"), [queue(f"-{at}") for at in range(2)]
    earlier, later = ({"RedrivePolicy": policy(arn_of(sqs, one))} for one in targets)
    apply = queues._apply

    async def apply_late(*arguments):
        monkeypatch.undo()
        await asyncio.to_thread(sqs.set_queue_attributes, QueueUrl=source, Attributes=later)
        await apply(*arguments)

    monkeypatch.setattr(queues, "_apply", apply_late)
    sqs.set_queue_attributes(QueueUrl=source, Attributes=earlier)
    told = sqs.get_queue_attributes(QueueUrl=source, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert (told, app.queue(f"{name}-source").config().dead_to) == (later, f"{name}-1")


def test_without_its_policy_a_message_is_received_for_ever(sqs, pair):
    _, source = pair()
    sqs.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": ""})
    sqs.send_message(QueueUrl=source, MessageBody="m")
    for _ in range(4):
        assert len(received(sqs, source, VisibilityTimeout=0)) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ({"deadLetterTargetArn": None}, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        ({"maxReceiveCount": None}, "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ({"maxReceiveCount": 0}, "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000"),
        ({"maxReceiveCount": "1001"}, "Invalid value for maxReceiveCount: 1001, valid values are from 1 to 1000"),
        ({"maxReceiveCount": True}, "Invalid value for maxReceiveCount: true, valid values are from 1 to 1000"),
        ({"maxReceiveCount": [None]}, "Invalid value for maxReceiveCount: [null], valid values are from 1 to 1000"),
        ({"deadLetterTargetArn": "arn:x"}, "Invalid value for deadLetterTargetArn."),
        ({"deadLetterTargetArn": "arn:aws:sns:us-east-1:000000000000:x"}, "Only SQS queues are valid resources for "),
        ({"deadLetterTargetArn": "arn:aws:sqs:us-east-1:111111111111:x"}, "Dead-letter target owner should be same"),
        ({"deadLetterTargetArn": "arn:aws:sqs:us-east-1::x"}, "Invalid value for deadLetterTargetArn."),
        ({"deadLetterTargetArn": "arn:aws:sqs:us-west-1:000000000000:x"}, "Dead-letter target must be in same region"),
        ({"deadLetterTargetArn": "{arn}-nothing"}, "Dead letter target does not exist."),
        ({"deadLetterTargetArn": "{arn}.fifo"}, "Dead-letter queue must be same type of queue as the source.."),
        ({"other": 1}, "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount]."),
    ],
    ids=lambda one: str(one)[:30],
)
def test_a_policy_that_is_wrong_is_refused_with_the_words_of_aws(sqs, queue, name, change, reason):
    arn = arn_of(sqs, queue())
    if isinstance(change, dict):
        given = {"deadLetterTargetArn": arn, "maxReceiveCount": 2, **change}
        given = {key: value for key, value in given.items() if value is not None}
        text = json.dumps(given).replace("{arn}", arn)
    else:
        text = change
    said = code_of(sqs.create_queue, QueueName=f"{name}-new", Attributes={"RedrivePolicy": text})
    assert said[:2] == ("InvalidParameterValue", 400)
    assert said[2].startswith(f"Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}")


def test_a_queue_that_is_its_own_target_keeps_its_messages(sqs, queue):
    url = queue()
    itself = policy(arn_of(sqs, url), 1)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": itself})
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert json.loads(found["RedrivePolicy"]) == json.loads(itself)
    assert sqs.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == [url]
    sqs.send_message(QueueUrl=url, MessageBody="m")
    for _ in range(3):
        assert received(sqs, url, VisibilityTimeout=0)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])


def test_a_target_says_which_queues_it_takes(sqs, queue, name):
    deny = json.dumps({"redrivePermission": "denyAll"})
    dead = queue("-dead", RedriveAllowPolicy=deny)
    wanted = {"RedrivePolicy": policy(arn_of(sqs, dead))}
    assert code_of(sqs.create_queue, QueueName=f"{name}-s", Attributes=wanted)[0] == "InvalidParameterValue"
    by_queue = {"redrivePermission": "byQueue", "sourceQueueArns": [f"arn:aws:sqs:us-east-1:000000000000:{name}-s"]}
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(by_queue)})
    sqs.create_queue(QueueName=f"{name}-s", Attributes=wanted)


@pytest.mark.parametrize(
    "text",
    [
        "x", "[]", "{}", '{"redrivePermission": "x"}', '{"redrivePermission": "allowAll", "other": 1}',
        '{"redrivePermission": "byQueue", "sourceQueueArns": "arn"}',
        '{"redrivePermission": "byQueue", "sourceQueueArns": [1]}',
    ],
)  # fmt: skip
def test_an_allow_policy_that_cannot_be_read_is_a_wrong_value(sqs, queue, text):
    reason = "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format."
    assert code_of(sqs.set_queue_attributes, QueueUrl=queue(), Attributes={"RedriveAllowPolicy": text}) == (
        "InvalidAttributeValue", 400,
        f"Invalid value for the parameter RedriveAllowPolicy. Reason: {reason}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("permission", "regions", "reason"),
    [
        ("allowAll", [_EAST], "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."),
        ("denyAll", [_EAST], "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."),
        ("byQueue", [], "When you specify the byQueue permission type, you must also specify one or more "),
        ("byQueue", [_EAST] * 11, "The maximum number of source queue ARNs you can specify is 10."),
        ("byQueue", [_EAST, "us-west-1"], "All source queue ARNs must be in the same region as the current SQS queue."),
    ],
)
def test_an_allow_policy_names_up_to_ten_sources_of_its_region_or_none(sqs, queue, permission, regions, reason):
    sources = [f"arn:aws:sqs:{region}:0:s" for region in regions]
    text = json.dumps({"redrivePermission": permission, "sourceQueueArns": sources})
    said = code_of(sqs.set_queue_attributes, QueueUrl=queue(), Attributes={"RedriveAllowPolicy": text})
    assert said[:2] == ("InvalidParameterValue", 400)
    assert said[2].startswith(
        f"Value {text} for parameter RedriveAllowPolicy is invalid. Reason: Amazon SQS can't create the redrive allow "
        f"policy. {reason}"
    )


# --- move tasks


def tasks(sqs, dead, **options):
    return sqs.list_message_move_tasks(SourceArn=arn_of(sqs, dead), **options).get("Results", [])


def ended(sqs, dead):
    (task,) = tasks(sqs, dead)
    return task if task["Status"] not in ("RUNNING", "CANCELLING") else None


def test_messages_go_back_to_the_queue_in_which_they_died(sqs, pair):
    dead, source = pair()
    let_die(sqs, source, *(f"m{at}" for at in range(3)))
    eventually(lambda: _ready(sqs, dead) == 3)

    handle = sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))["TaskHandle"]
    task = eventually(lambda: ended(sqs, dead))

    assert handle
    assert task["Status"] == "COMPLETED"
    assert task["SourceArn"] == arn_of(sqs, dead)
    assert "DestinationArn" not in task
    assert "TaskHandle" not in task
    assert task["ApproximateNumberOfMessagesMoved"] == task["ApproximateNumberOfMessagesToMove"] == 3
    assert abs(task["StartedTimestamp"] - time.time() * 1000) < 120_000
    messages = received(sqs, source, AttributeNames=["All"])
    assert sorted(one["Body"] for one in messages) == ["m0", "m1", "m2"]
    assert {one["Attributes"]["ApproximateReceiveCount"] for one in messages} == {"1"}
    assert _ready(sqs, dead) == 0


def _ready(sqs, url):
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    return int(found["Attributes"]["ApproximateNumberOfMessages"])


def test_two_messages_with_one_id_are_both_moved(sqs, app, pair):
    """Python's producers may choose ids, and use one again."""
    dead, source = pair()
    for body in ("created", "paid"):
        app.queue(source.rpartition("/")[2]).send(body, id="order-7")
    for _ in range(2):
        assert len(received(sqs, source, VisibilityTimeout=0)) == 2
    assert received(sqs, source) == []
    eventually(lambda: _ready(sqs, dead) == 2)
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    assert eventually(lambda: ended(sqs, dead))["ApproximateNumberOfMessagesMoved"] == 2
    assert sorted(one["Body"] for one in received(sqs, source)) == ["created", "paid"]
    assert _ready(sqs, dead) == 0


def test_a_task_that_has_moved_all_messages_is_complete(sqs, pair):
    dead, source = pair()
    let_die(sqs, source, *(f"m{at}" for at in range(3)))
    eventually(lambda: _ready(sqs, dead) == 3)
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead), MaxNumberOfMessagesPerSecond=1)

    def all_moved():
        (task,) = tasks(sqs, dead)
        return task if task["ApproximateNumberOfMessagesMoved"] == 3 else None

    assert eventually(all_moved)["Status"] == "COMPLETED"


def test_messages_go_to_a_destination_in_the_order_of_their_group(sqs, queue, pair):
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    dead, source = pair(".fifo", **fifo)
    target = queue("-target.fifo", **fifo)
    let_die(sqs, source, "m0", "m1", "m2", MessageGroupId="g")
    eventually(lambda: _ready(sqs, dead) == 3)
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead), DestinationArn=arn_of(sqs, target))
    assert eventually(lambda: ended(sqs, dead))["DestinationArn"] == arn_of(sqs, target)
    assert [one["Body"] for one in received(sqs, target)] == ["m0", "m1", "m2"]


def test_a_task_is_slow_if_asked_to_and_ends_when_it_is_cancelled(sqs, pair):
    dead, source = pair()
    let_die(sqs, source, *(f"m{at}" for at in range(10)))
    eventually(lambda: _ready(sqs, dead) == 10)
    started = sqs.start_message_move_task(SourceArn=arn_of(sqs, dead), MaxNumberOfMessagesPerSecond=1)
    running = tasks(sqs, dead)[0]
    assert running["Status"] == "RUNNING"
    assert running["MaxNumberOfMessagesPerSecond"] == 1
    assert running["TaskHandle"] == started["TaskHandle"]
    assert code_of(sqs.start_message_move_task, SourceArn=arn_of(sqs, dead)) == (
        "InvalidParameterValue", 400,
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
    )  # fmt: skip

    sqs.cancel_message_move_task(TaskHandle=started["TaskHandle"])

    task = eventually(lambda: ended(sqs, dead))
    assert task["Status"] == "CANCELLED"
    assert task["ApproximateNumberOfMessagesMoved"] < 10
    assert code_of(sqs.cancel_message_move_task, TaskHandle=started["TaskHandle"]) == (
        "InvalidParameterValue", 400, "Only active tasks can be cancelled.",
    )  # fmt: skip


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_task_whose_destination_is_deleted_fails(sqs, queue, pair, app, name, is_made_anew):
    """Also if a message that is on its way makes the destination anew."""
    dead, source = pair()
    target = queue("-target")
    let_die(sqs, source, *(f"m{at}" for at in range(10)))
    eventually(lambda: _ready(sqs, dead) == 10)
    sqs.start_message_move_task(
        SourceArn=arn_of(sqs, dead), DestinationArn=arn_of(sqs, target), MaxNumberOfMessagesPerSecond=1
    )
    eventually(lambda: tasks(sqs, dead)[0]["ApproximateNumberOfMessagesMoved"])
    sqs.delete_queue(QueueUrl=target)
    if is_made_anew:
        app.queue(f"{name}-target").send("late")
    task = eventually(lambda: ended(sqs, dead))
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")


def test_what_a_task_could_not_move_is_visible_at_once(sqs, pair):
    dead, _ = pair()
    for body in ("a", "b"):
        sqs.send_message(QueueUrl=dead, MessageBody=body)  # they died in no queue
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    task = eventually(lambda: ended(sqs, dead))
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert [one["Body"] for one in received(sqs, dead)] == ["a", "b"]


def test_tasks_of_queues_that_are_gone_are_forgotten_with_the_next_task(sqs, pair, app):
    def come_and_go(number):
        dead, source = pair(f"-{number}")
        sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
        eventually(lambda: ended(sqs, dead))
        for url in (source, dead):
            sqs.delete_queue(QueueUrl=url)

    for number in range(3):
        come_and_go(number)
    assert len(app.store.call(ops_of_sqs.sqs_moves())) == 1


def test_what_is_wrong_with_a_task_is_said_in_the_words_of_aws(sqs, queue, pair):
    dead, _ = pair()
    arn, other = arn_of(sqs, dead), arn_of(sqs, queue())
    missing = "The resource that you specified for the {} parameter doesn't exist."
    assert code_of(sqs.start_message_move_task, SourceArn=f"{arn}-nothing") == (
        "ResourceNotFoundException", 404, missing.format("SourceArn"),
    )  # fmt: skip
    assert code_of(sqs.start_message_move_task, SourceArn=arn, DestinationArn=f"{arn}-nothing") == (
        "ResourceNotFoundException", 404, missing.format("DestinationArn"),
    )  # fmt: skip
    assert code_of(sqs.start_message_move_task, SourceArn=other) == (
        "InvalidParameterValue", 400, "Source queue must be configured as a Dead Letter Queue.",
    )  # fmt: skip
    assert code_of(sqs.start_message_move_task, SourceArn=arn, DestinationArn=arn) == (
        "InvalidParameterValue", 400, "Source queue arn and destination queue arn cannot be the same.",
    )  # fmt: skip
    fifo = arn_of(sqs, queue(".fifo", FifoQueue="true"))
    assert code_of(sqs.start_message_move_task, SourceArn=arn, DestinationArn=fifo) == (
        "InvalidParameterValue", 400, "The source queue and destination queue must be of the same queue type.",
    )  # fmt: skip
    form = "You must use this format to specify the SourceArn: arn:<partition>:<service>:<region>:<account-id>:"
    for call in (sqs.start_message_move_task, sqs.list_message_move_tasks):
        said = code_of(call, SourceArn="dead")
        assert said == ("InvalidParameterValue", 400, f"{form}<resource-id>")
    wrong_rate = "Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason:"
    assert code_of(sqs.start_message_move_task, SourceArn=arn, MaxNumberOfMessagesPerSecond=501) == (
        "InvalidParameterValue", 400,
        f"{wrong_rate} You must enter a number that's between 1 and 500.",
    )  # fmt: skip
    assert code_of(sqs.cancel_message_move_task, TaskHandle="none")[0] == "InvalidParameterValue"
    assert code_of(sqs.list_message_move_tasks, SourceArn=arn, MaxResults=11)[0] == "InvalidParameterValue"
    assert sqs.list_message_move_tasks(SourceArn=arn)["Results"] == []


@pytest.mark.long
def test_another_endpoint_goes_on_with_a_task_whose_endpoint_was_killed(url, name):
    with own_process(url) as (killed, first), own_process(url) as (_, second):
        sqs = client_of(first)
        dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
        redrive = {"RedrivePolicy": policy(arn_of(sqs, dead), 2)}
        source = sqs.create_queue(QueueName=name, Attributes=redrive)["QueueUrl"]
        let_die(sqs, source, *(f"m{at}" for at in range(10)))
        eventually(lambda: _ready(sqs, dead) == 10)
        sqs.start_message_move_task(SourceArn=arn_of(sqs, dead), MaxNumberOfMessagesPerSecond=5)
        eventually(lambda: tasks(sqs, dead)[0]["ApproximateNumberOfMessagesMoved"])
        killed.kill()
        killed.wait()

        other = client_of(second)
        eventually(lambda: ended(other, name + "-dead"), timeout=90)
        messages = [one["Body"] for _ in range(3) for one in received(other, name, VisibilityTimeout=600)]
        assert sorted(messages) == [f"m{at}" for at in range(10)]


@pytest.mark.long
@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_what_a_killed_endpoint_had_in_flight_is_moved_by_another_one(url, name, fifo):
    suffix, attributes = (".fifo", {"FifoQueue": "true"}) if fifo else ("", {})
    with own_process(url) as (killed, first), own_process(url) as (_, second):
        sqs, other = client_of(first), client_of(second)

        def created(what: str, **more: str) -> str:
            return sqs.create_queue(QueueName=f"{name}-{what}{suffix}", Attributes=attributes | more)["QueueUrl"]

        dead, target = created("dead"), created("target")
        created("source", RedrivePolicy=policy(arn_of(sqs, dead)))
        for number in range(200):
            options = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)} if fifo else {}
            sqs.send_message(QueueUrl=dead, MessageBody=str(number), **options)
        sqs.start_message_move_task(
            SourceArn=arn_of(sqs, dead), DestinationArn=arn_of(sqs, target), MaxNumberOfMessagesPerSecond=100
        )
        with reliq.Reliq(url) as app:
            (held,) = [app.queue(one) for one in app.queues() if f"{name}-dead" in one]
            eventually(lambda: held.stats().processing)
        killed.kill()
        killed.wait()

        began = time.monotonic()
        eventually(lambda: ended(other, f"{name}-dead{suffix}"), timeout=90)
        assert time.monotonic() - began < 45  # it does not wait for the end of the visibility
        moved = []
        while messages := received(other, target):
            for one in messages:
                moved.append(one["Body"])
                other.delete_message(QueueUrl=target, ReceiptHandle=one["ReceiptHandle"])
        assert _ready(other, f"{name}-dead{suffix}") == 0
        assert (moved if fifo else sorted(moved, key=int)) == [str(number) for number in range(200)]


@pytest.mark.parametrize("behind", [0, 60], ids=["", "the clock is behind"])
def test_a_task_does_not_end_before_what_a_killed_endpoint_held_has_come_back(url, sqs, queue, monkeypatch, behind):
    time_of_day = time.time_ns
    began = time_of_day() // 1_000_000 - 20_000
    dead, target = queue("-dead"), queue("-target")
    source, destination = (address.rpartition("/")[2] for address in (dead, target))
    receive, calls = aio.Queue.receive, []

    async def receive_before_it_comes_back(self, **options):
        calls.append(options)
        if len(calls) > 1:
            return await receive(self, **options)
        await self.send("held")
        return []

    async def main() -> moves.Task:
        async with aio.Reliq(url) as app, Background() as background:
            runner = moves.Moves(
                app, Registry(app, Names("000000000000", _EAST), strict=False, background=background), background
            )
            arn = arn_of(sqs, dead)
            task = moves.Task(id="inherited", source=source, source_arn=arn, destination=destination, started=began)
            await app.store.run(one(ops_of_sqs.lead_sqs_move(task.id, runner._endpoint)))
            await app.store.run(moves._add(task))
            await runner._run(task)
            return task

    monkeypatch.setattr(aio.Queue, "receive", receive_before_it_comes_back)
    monkeypatch.setattr(time, "time_ns", lambda: time_of_day() - behind * 10**9)
    task = asyncio.run(main())
    assert (task.status, task.moved, _ready(sqs, dead), _ready(sqs, target)) == ("COMPLETED", 1, 0, 1)
