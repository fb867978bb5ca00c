"""Clients of the SQS endpoints: a sender and a consumer, with boto3 as any program has it, and no part of reliq."""

import random
import time
from collections.abc import Sequence
from typing import Any

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from reliq.errors import OutcomeUnknown, RedisUnavailable
from tests.campaign.history import History
from tests.campaign.tasks import QUEUE, Outgoing, Task

_GIVE_UP = 30.0  #: seconds
_PAUSE = 0.1
_FAIL_DELAY = 1  #: seconds, whole ones as SQS has them, until a message that has failed once is visible again
_TRUSTED = 0.7  #: of its visibility: for so long after a receive a message is handled
_AT_ONCE = 10  #: messages in a call of SQS
_OPTIONS = Config(
    region_name="us-east-1", retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10,
)  # fmt: skip


class Endpoints:
    """Several endpoints, as behind a balancer: a call that fails goes to another one."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._clients = [
            boto3.client("sqs", endpoint_url=url, config=_OPTIONS, aws_access_key_id="x", aws_secret_access_key="x")
            for url in urls
        ]
        self._urls = [f"{url}/000000000000/{QUEUE}" for url in urls]

    def ask(self, action: str, until: float | None = None, **fields: Any) -> Any:
        """Call an action, again until it is answered. Raises OutcomeUnknown, and ClientError for a refusal."""
        until = until or time.monotonic() + _GIVE_UP
        while True:
            place = random.randrange(len(self._clients))
            try:
                return getattr(self._clients[place], action)(QueueUrl=self._urls[place], **fields)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    raise
                problem: Exception = error
            except BotoCoreError as error:  # the connection ended, or was refused
                problem = error
            if time.monotonic() > until:
                raise OutcomeUnknown(f"no answer within {_GIVE_UP:g} s: {problem}")
            time.sleep(_PAUSE)


class SqsSender:
    """Sends to the FIFO queue. A call is repeated until it is answered: SQS knows its deduplication ids."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._endpoints = Endpoints(urls)

    def send(self, messages: Sequence[Outgoing]) -> list[str]:
        ids: list[str] = []
        for first in range(0, len(messages), _AT_ONCE):
            entries = [_entry(number, one) for number, one in enumerate(messages[first : first + _AT_ONCE])]
            try:
                answer = self._endpoints.ask("send_message_batch", Entries=entries)
            except ClientError as error:
                raise RedisUnavailable(str(error)) from None
            if answer.get("Failed"):
                raise OutcomeUnknown(f"some messages of a batch failed: {answer['Failed']}")
            ids += [one["MessageId"] for one in sorted(answer["Successful"], key=lambda one: int(one["Id"]))]
        return ids

    def cancel(self, identity: str) -> str:
        raise NotImplementedError("SQS cancels nothing")


def _entry(number: int, message: Outgoing) -> dict[str, str]:
    return {
        "Id": str(number),
        "MessageBody": message.body.decode(),
        "MessageGroupId": message.key or message.task.name,
        "MessageDeduplicationId": message.dedup_key or message.task.name,
    }


class SqsConsumer:
    """Receives, runs and deletes, and notes all of it."""

    def __init__(self, urls: Sequence[str], history: History, visibility: int, work: float) -> None:
        self._endpoints = Endpoints(urls)
        self._history = history
        self._visibility = visibility
        self._work = work
        self.stopping = False

    def run(self) -> None:
        """Work until it is stopped."""
        while not self.stopping:
            since = time.monotonic()
            try:
                answer = self._endpoints.ask(
                    "receive_message", MaxNumberOfMessages=_AT_ONCE, WaitTimeSeconds=1,
                    VisibilityTimeout=self._visibility, AttributeNames=["All"],
                )  # fmt: skip
            except OutcomeUnknown:
                continue
            messages = answer.get("Messages", [])
            if messages:
                self._history.note("claim", "ok", since=since, ids=[one["MessageId"] for one in messages])
            for one in messages:
                if time.monotonic() - since > self._visibility * _TRUSTED:
                    break  # the rest becomes visible again
                self._handle(one)

    def _handle(self, message: dict[str, Any]) -> None:
        task = msgspec.json.decode(message["Body"], type=Task)
        run = self._history.invoke("run", id=message["MessageId"], name=task.name)
        time.sleep(self._work)
        if task.do == "fail" and message["Attributes"]["ApproximateReceiveCount"] == "1":
            run.ends("fail", then="retried")
            self._settle(message, "delayed", "change_message_visibility", VisibilityTimeout=_FAIL_DELAY)
        else:
            run.ends("ok")
            self._settle(message, "ack", "delete_message")

    def _settle(self, message: dict[str, Any], to: str, action: str, **fields: Any) -> None:
        identity = message["MessageId"]
        delays = {identity: _FAIL_DELAY} if to == "delayed" else {}
        call = self._history.invoke("settle", ids=[identity], to=[to], delays=delays)
        try:
            self._endpoints.ask(action, ReceiptHandle=message["ReceiptHandle"], **fields)
        except ClientError:
            call.ends("ok", codes="l")
        except OutcomeUnknown:
            return
        else:
            call.ends("ok", codes="d")
