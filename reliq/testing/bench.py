"""The bench: an application under test, its sends, its handlers and its clock."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from reliq.client.app import Reliq
from reliq.contract import values
from reliq.errors import InvalidSetting
from reliq.extras import missing_extra
from reliq.model.keys import new_owner
from reliq.model.middleware import Middleware, Sending
from reliq.model.outgoing import NewMessage
from reliq.testing.due import bring_due
from reliq.testing.offline import check_sync, connect, fake, run_ready
from reliq.testing.running import AsyncHandlers
from reliq.worker.worker import COMPANIONS


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that the application has sent."""

    to: str  #: the queue, or the routing key of a published message
    id: str
    body: bytes
    headers: Mapping[str, str]
    delay: float  #: seconds
    key: str
    priority: str

    def json(self) -> Any:
        """Return the decoded JSON body."""
        return json.loads(self.body)


class Bench:
    """An application under test. A context: leaving it gives the application and the clock back.

    Without `url` the application works on a new, empty Redis in the memory of this process, else on that server.
    Broadcasts and checks do not run here.
    """

    def __init__(self, app: Reliq, url: str | None = None) -> None:
        check_sync(app)
        self.app = app
        self._url = url
        self._recorder = _Recorder()
        self._found: tuple[str, Any] | None = None  #: where the application was connected before
        self._clock: Any = None
        self._loop = AsyncHandlers()

    def start(self) -> Self:
        """Begin; `with` does it. Raises InvalidSetting while another bench has the application."""
        if any(isinstance(one, _Recorder) for one in self.app.handlers.around_sends):
            raise InvalidSetting(
                "this application is on another bench, and has one server at a time: use that bench, or end it first, "
                "as with Bench(app) as bench: does"
            )
        self._found = self.app.store.aim
        self.app.handlers.around_sends.append(self._recorder)
        self.app.handlers.on_commit.append(self._recorder.committed)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        if self._url is None:
            fake(self.app)
        else:
            connect(self.app, self._url)
        for companion in COMPANIONS:
            if companion.on_bench:
                companion(self.app.store, self.app.handlers, new_owner(connected=False)).start()

    def close(self) -> None:
        """Connect the application to the server that it had before, and set the clock right. May be repeated."""
        self._loop.close()
        self._stop_clock()
        if self._found is not None:
            self.app.handlers.around_sends.remove(self._recorder)
            self.app.handlers.on_commit.remove(self._recorder.committed)
            connect(self.app, *self._found)
            self._found = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def work_off(self, limit: int = 1000) -> int:
        """Run the handlers of all ready messages now, at most `limit`, also of those sent meanwhile; return how many.

        Outcomes are settled as by a worker: acked, retried, dead. Delayed messages and retries stay delayed until they
        are due by the clock of the server.
        """
        return run_ready(self.app, limit, self._loop)

    def sent(self, to: str | None = None) -> list[Sent]:
        """Return the messages that the application has sent so far: all, or those to a queue or routing key.

        A prepared message is one of them from its commit on.
        """
        return [one for one in self._recorder.sent if to in (None, one.to)]

    def travel(self, duration: values.Duration) -> int:
        """Move the clock ahead, and do what a monitor would have done meanwhile; return how many messages came due.

        Everything follows the clock: delays, retries, expiry, deduplication, limits and schedules, also Python's own
        clock until the end of the bench. A schedule sends the ticks that its catch-up policy asks for. Only without a
        server, which has a clock of its own: raises InvalidSetting there.
        """
        if self._url is not None:
            raise InvalidSetting("travel: a Redis server has a clock of its own; test this without a server")
        import time

        moment = time.time() + values.seconds(duration, "duration")
        self._stop_clock()
        self._clock = _time_machine().travel(moment, tick=True)
        self._clock.start()
        return bring_due(self.app.store, ticks=True)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.stop()
            self._clock = None


def _time_machine() -> Any:
    try:
        import time_machine
    except ImportError as error:
        raise missing_extra("travel", "testing", error) from None
    return time_machine


class _Recorder(Middleware[Sending]):
    """Notes what is sent, with the headers that other middleware has added; prepared messages at their commit."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._prepared: dict[tuple[str, str], Sent] = {}  #: by queue and id

    def after(self, sending: Sending, result: Any) -> None:
        for one in sending.messages:
            sent = _as_sent(sending.destination, one)
            if sending.prepared:
                self._prepared[sent.to, sent.id] = sent
            elif not one.duplicate:
                self.sent.append(sent)

    def committed(self, queue: str, identity: str) -> None:
        if (queue, identity) in self._prepared:
            self.sent.append(self._prepared.pop((queue, identity)))


def _as_sent(to: str, one: NewMessage) -> Sent:
    return Sent(to, one.id, one.body, dict(one.headers), one.delay, one.key, one.priority)
