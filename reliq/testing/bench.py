"""The bench: an application under test, its sends, its handlers and its clock."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from reliq.client.app import Reliq
from reliq.contract import values
from reliq.errors import InvalidSetting
from reliq.extras import missing_extra
from reliq.model.keys import new_owner
from reliq.model.middleware import Middleware, Sending
from reliq.model.outgoing import NewMessage
from reliq.runtime.barred import bar, is_same_server
from reliq.runtime.url import redacted
from reliq.testing.due import bring_due
from reliq.testing.offline import check_sync, fake, run_ready
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
    Broadcasts and checks do not run here. Meanwhile this process opens no new connection to the server that the
    application had before: another client, such as that of a web framework, raises InvalidSetting there.
    """

    def __init__(self, app: Reliq, url: str | None = None) -> None:
        check_sync(app)
        self.app = app
        self._url = url
        self._recorder = _Recorder()
        self._found: tuple[str, Any] | None = None  #: where the application was connected before
        self._allow_found: Callable[[], None] | None = None  #: ends the refusal of connections to that server
        self._clock: Any = None
        self._loop = AsyncHandlers()

    @property
    def url(self) -> str:
        """The URL of the server, for other clients in a test. Raises InvalidSetting on a bench without a server."""
        if self._url is None:
            raise InvalidSetting(
                "this bench has no server, so there is no URL that another client could use: test it on a server, with "
                "on_server(app) or Bench(app, url)"
            )
        return self._url

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
            self.app._redirect(self._url)  # noqa: SLF001
        if self._found is not None and not is_same_server(live := self._found[0], self.app.url):
            self._allow_found = bar(live, _refusal(live, self._url))
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
            self.app._redirect(*self._found)  # noqa: SLF001
            self._found = None
        if self._allow_found is not None:
            self._allow_found()
            self._allow_found = None

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


def _refusal(live: str, url: str | None) -> str:
    """Return what the error says where another client connects to the server of an application on a bench at `url`."""
    use = "test on a server, on_server(app), and give this client bench.url" if url is None else "give it bench.url"
    return (
        f"a test has the application of {redacted(live)} on a bench, and this other client would use that server "
        f"itself: {use} (or app.url, which names the server of the bench)"
    )


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
