"""The faces that consume by hand: each takes messages, and settles one as the story says."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import httpx
import kombu

from tests.combine.entries import HOUR
from tests.combine.senders import QUEUE
from tests.reference.model import IN_FLIGHT
from tests.support.workers import eventually

_LATER = 60.0
SIGNAL = "go"  #: that a message waits for
#: By outcome: what an HTTP lease says beside the id.
RESTS: Mapping[str, Mapping[str, Any]] = {
    "sleep": {"name": "nap", "seconds": _LATER}, "wait": {"signal": SIGNAL},
}  # fmt: skip
Opened = tuple[str, list[str]]  #: the id of a flow, and those of its messages


def open_flow(app: Any, message: Any, last: str) -> Opened:
    """Open a flow of two messages for one that is held: the second, with this body, is behind the first."""
    with app.flow(parent=message) as flow:
        first = flow.send(QUEUE, "first")
        return flow.id, [first.id, flow.send(QUEUE, last, after=first).id]


class Taker(Protocol):
    """A consumer of queue q."""

    settles_later: bool  #: a thread of its own settles what was acked
    name: str  #: of the consumer in the model

    def take(self) -> list[str]:
        """Claim what there is now; return ids in their order."""

    def charge(self, identity: str, actual: int) -> None:
        """Say what the run of a message that was taken has cost."""

    def open_flow(self, identity: str, last: str) -> Opened:
        """Open a flow as its handler does."""

    def settle(self, identity: str, outcome: str) -> None:
        """Settle a message that was taken."""

    def learn(self) -> bool:
        """Learn now which of its messages were cancelled, as with its next heartbeat; return whether it ever does."""

    def vanish(self) -> None:
        """End without a word."""

    def leave(self) -> None:
        """End in order."""


class ByHand:
    """`queue.consumer()`."""

    settles_later, name = False, "w"

    def __init__(self, app: Any) -> None:
        self._app = app
        self._held: dict[str, Any] = {}
        self._consumer: Any = None

    def take(self) -> list[str]:
        if self._consumer is None:
            self._consumer = self._app.queue(QUEUE).consumer().__enter__()
        found = self._consumer.claim(10)
        self._held |= {message.id: message for message in found}
        return [message.id for message in found]

    def charge(self, identity: str, actual: int) -> None:
        done = self._held[identity].charge(actual)
        if done is not None:
            self._app.runner.run(done)

    def open_flow(self, identity: str, last: str) -> Opened:
        return open_flow(self._app, self._held[identity], last)

    def settle(self, identity: str, outcome: str) -> None:
        message, one = self._held.pop(identity), self._consumer
        match outcome:
            case "retry later":
                one.retry(message, _LATER)
            case "rejected":
                one.dead(message, "it is wrong")
            case _:
                {"ack": one.ack, "retry": one.retry, "release": one.release}[outcome](message)

    def learn(self) -> bool:
        return self._consumer is None or self._consumer.heartbeat()

    def vanish(self) -> None:
        """End without a word to Redis."""
        consumer, self._consumer = self._consumer, None
        for holding in getattr(consumer, "inner", consumer)._holdings.values():
            holding.steps.end_life()
        consumer.__exit__(None, None, None)
        self._held.clear()

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.__exit__(None, None, None)
            self._consumer = None


class Lease:
    """A lease over HTTP for each claim."""

    settles_later, name = False, "w"

    def __init__(self, service: Callable[[], httpx.Client]) -> None:
        self._service = service
        self._lease: dict[str, str] = {}
        self.code = ""  #: of the latest settlement

    def take(self) -> list[str]:
        answer = self._service().post(f"/v1/queues/{QUEUE}/leases", json={"limit": 10}).json()
        found = [message["id"] for message in answer["messages"]]
        self._lease |= dict.fromkeys(found, answer.get("lease", ""))
        return found

    def charge(self, identity: str, actual: int) -> None:
        path = f"/v1/queues/{QUEUE}/leases/{self._lease[identity]}/charge"
        answer = self._service().post(path, json={"id": identity, "actual": actual})
        assert answer.status_code == 200, answer.text

    def open_flow(self, identity: str, last: str) -> Opened:
        messages = [
            {"queue": QUEUE, "message": {"body": "first"}},
            {"queue": QUEUE, "message": {"body": last}, "after": [0]},
        ]
        parent = {"queue": QUEUE, "lease": self._lease[identity], "id": identity}
        answer = self._service().post("/v1/flows", json={"messages": messages, "parent": parent})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"], [one["id"] for one in answer.json()["messages"]]

    def settle(self, identity: str, outcome: str) -> None:
        settlements: Mapping[str, Any] = {
            "ack": {"ack": [identity]}, "retry": {"retry": [{"id": identity, "delay": 0}]},
            "retry later": {"retry": [{"id": identity, "delay": _LATER}]}, "release": {"release": [identity]},
            "rejected": {"dead": [{"id": identity, "reason": "it is wrong"}]},
        }  # fmt: skip
        lease = self._lease.pop(identity)
        if outcome in RESTS:
            path = f"/v1/queues/{QUEUE}/leases/{lease}/{outcome}"
            assert (
                self._service().post(path, json={"id": identity, **RESTS[outcome]}).json()["state"] == f"{outcome}ing"
            )
            return
        answer = self._service().post(f"/v1/queues/{QUEUE}/leases/{lease}/settle", json=settlements[outcome])
        (self.code,) = (one["code"] for one in answer.json()["results"])

    def learn(self) -> bool:
        return True  # each settlement reads it

    def vanish(self) -> None:
        self._lease.clear()

    def leave(self) -> None:
        pass


class Receiver:
    """`queue.receive()`. `most_receives`: a message that was received so often dies."""

    settles_later, name = False, IN_FLIGHT

    def __init__(self, app: Any, most_receives: int | None) -> None:
        self._app = app
        self._most_receives = most_receives
        self._receipts: dict[str, str] = {}

    def take(self) -> list[str]:
        found = self._app.queue(QUEUE).receive(10, HOUR, most_receives=self._most_receives)
        self._receipts |= {one.message.id: one.receipt for one in found}
        return [one.message.id for one in found]

    def charge(self, identity: str, actual: int) -> None:
        raise NotImplementedError

    def open_flow(self, identity: str, last: str) -> Opened:
        raise NotImplementedError

    def settle(self, identity: str, outcome: str) -> None:
        receipt, queue = self._receipts.pop(identity), self._app.queue(QUEUE)
        if outcome == "ack":
            assert queue.delete_received([receipt]) == ["deleted"]
        else:
            assert queue.change_visibility([(receipt, 0.001 if outcome == "lapse" else 0)]) == ["changed"]
            assert outcome != "lapse" or eventually(queue.return_due) == 1

    def learn(self) -> bool:
        return True  # what is cancelled in flight is gone at once

    def vanish(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """Forget what its claims were told of limits."""
        self._app.queue(QUEUE)._receipts._receivers.clear()


class Kombu:
    """A channel of kombu."""

    settles_later, name = True, "w"

    def __init__(self, broker: Callable[[], kombu.Connection]) -> None:
        self._broker = broker
        self._channel: Any = None
        self._held: dict[str, Any] = {}

    def take(self) -> list[str]:
        found = []
        self._channel = self._channel or self._broker().channel()
        while (message := self._channel.basic_get(QUEUE)) is not None:
            identity = message.delivery_tag.rpartition(" ")[0]
            self._held[identity] = message
            found.append(identity)
        return found

    def charge(self, identity: str, actual: int) -> None:
        raise NotImplementedError

    def open_flow(self, identity: str, last: str) -> Opened:
        raise NotImplementedError

    def settle(self, identity: str, outcome: str) -> None:
        message = self._held.pop(identity)
        {"ack": message.ack, "rejected": message.reject, "release": message.requeue}[outcome]()

    def learn(self) -> bool:
        return True  # each settlement reads it

    def vanish(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
