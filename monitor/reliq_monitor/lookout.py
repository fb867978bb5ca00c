"""Lookout: what a monitor sees at its place: the queues and its share of them, the server, the consumers."""

import functools
import time
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Protocol

from reliq import ops
from reliq.model.keys import QUEUES, QueueKeys
from reliq.ops import Steps
from reliq_monitor.calls import Calls
from reliq_monitor.leases import Leases, read_leases
from reliq_monitor.liveness import Liveness
from reliq_monitor.membership import Membership
from reliq_monitor.place import Place
from reliq_monitor.queue_scan import Gone, Survey, pages
from reliq_monitor.server_watch import ServerWatch

_CONSUMERS = "consumers"  #: the key of a queue that has them


class Memory(Protocol):
    """What remembers something about queues."""

    def keep(self, queues: Container[str]) -> None:
        """Forget all other queues."""


class Lookout:
    """Keeps the survey of one place."""

    def __init__(
        self,
        place: Place,
        calls: Calls,
        survey: Survey,
        membership: Membership,
        liveness: Liveness,
        watch: ServerWatch,
        seeks: Sequence[str],
        memories: Sequence[Memory],
    ) -> None:
        """`survey`: without queues. `seeks`: the keys of queues that a look seeks.

        `memories` forget what other monitors lead from now on.
        """
        self.survey = survey
        self.names: Sequence[str] = []  #: of all queues here
        self.clock_jumps = 0  #: of the server
        self._place = place
        self._calls = calls
        self._attempts = survey.attempts
        self._membership = membership
        self._liveness = liveness
        self._watch = watch
        self._seeks = tuple(dict.fromkeys((_CONSUMERS, *seeks)))
        self._memories = memories

    # --- the queues ---

    @property
    def knows_none(self) -> bool:
        """Whether no queue is known, though there may be some."""
        return not self.names and self._place.names is None

    @property
    def _every_name(self) -> Sequence[str]:
        """All queues, also those of other nodes."""
        return self.names if self._place.every_name is None else self._place.every_name()

    def learn_queues(self) -> None:
        """Read the names of the queues."""
        self._calls.run(self._attempts.of_all("queues", self._learn(), None))

    def _learn(self) -> Steps[None]:
        names = (yield from self._read_names()) if self._place.names is None else list(self._place.names())
        if names != self.names:
            self.names = names
            self.share_out()
            if self.survey.measurements is not None:
                self.survey.measurements.keep(frozenset(self.survey.every_name))

    def _read_names(self) -> Steps[list[str]]:
        known: list[str] | None = self.survey.known.get(QUEUES)
        if known is not None:
            return known
        names: list[str] = yield ops.queue_names()
        self.survey.known.note(QUEUES, names)
        return names

    def share_out(self) -> list[str]:
        """Find this monitor's share of the queues, and forget the others; return the queues that are new in it."""
        share = self._membership.share(self.names)
        common = tuple(work for work in self._place.common if self._membership.leads(work))
        before = {keys.queue for keys in self.survey.queues}
        if before != set(share) or common != self.survey.common:
            self.survey = self.survey.shared_out([QueueKeys(name) for name in share], common)
            self.survey.known.leave(before.difference(share))
            for memory in self._memories:
                memory.keep({*share, *self._place.common})
        self.survey = replace(self.survey, every_name=self._every_name)
        return [name for name in share if name not in before]

    # --- a look ---

    def look(self) -> None:
        """Look at the queues, the server and the consumers; find those that have vanished."""
        self.learn_queues()
        if self._place.has_queues:
            self._watch_server()
            self._calls.run(self._look_at_queues())
        self.survey = replace(self.survey, every_name=self._every_name, looked_at=time.monotonic())

    def _watch_server(self) -> None:
        attempts, watch, run, at_node = self._attempts, self._watch, self._calls.run, self._calls.at_node
        jump = run(attempts.of_all("clock", watch.clock_jump(), 0), at_node)
        if jump:
            self.clock_jumps += 1
            self.survey.known.changed(None)  # what is due was noted by the clock before
            run(attempts.of_all("clock", self._note_jump(jump), None, "note", other_server=True))
        watch.begin(run(attempts.of_all("connections", watch.names(), None), at_node))
        run(attempts.of_all("connections", watch.note_start(), None, "start"), at_node)

    def _note_jump(self, jump: int) -> Steps[None]:
        now = yield ops.server_time()
        yield ops.note_clock_jump(now, jump)
        yield from self._membership.resign()  # and come back: the others' presence was noted by the earlier clock

    def _look_at_queues(self) -> Steps[None]:
        read = functools.partial(read_leases, known=self.survey.known, together=self.survey.at_once > 1)
        found = yield from self.survey.having_each("scan", self._seeks)
        consumers: list[tuple[QueueKeys, int, Leases]] = []
        for page in pages(found[_CONSUMERS]):
            answers = yield from self._attempts.together("scan", page, read)
            consumers += [(keys, now, leases) for keys, (now, leases) in answers]
        gone = [
            Gone(keys, vanished, now, time.monotonic())
            for keys, now, leases in consumers
            for vanished in self._liveness.look(keys.queue, leases, now)
        ]
        self.survey = replace(self.survey, found=found, consumers=consumers, gone=gone)
