"""One simulation from its first call to the end, when all faults are over and everything is drained."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

from reliq.contract.keywords import ConfigChanges
from reliq.errors import ReliqError
from reliq.features.flows import telling
from reliq.features.steps.signals import SignalSteps
from reliq.features.topics.client import TopicCalls
from reliq.model.keys import QueueKeys, new_owner
from reliq.ops import Together
from reliq.protocol.dead_letters import DeadLetterQueue, Filter, RedriveOptions
from tests.simulation import pages
from tests.simulation.callers import CALLERS, Caller
from tests.simulation.choices import Action, Actor, Disaster, Plan, Setting
from tests.simulation.clock import EPOCH, VirtualClock, in_force
from tests.simulation.kernel import Kernel
from tests.simulation.monitors import monitor
from tests.simulation.observer import Observer
from tests.simulation.processes import Process
from tests.simulation.scenario import ACTIVE, LEASE
from tests.simulation.server import SimulatedRedis
from tests.simulation.stories import DEAD, Violation
from tests.simulation.workers import Worker

RESTART_AFTER = 0.5  #: seconds after which a process that was killed is started again
SENDING_FOR_MS = 4000  #: after so long the producer of a flow is taken for dead
DROPPED_FOR_MS = 600_000  #: longer than a simulation: nothing may wait for that
DRAINED_WITHIN = 240.0  #: seconds after the last fault: durable handlers start often, and a rate may be 5/s


class Simulation:
    """Runs a plan."""

    def __init__(self, plan: Plan, server: SimulatedRedis) -> None:
        self.plan = plan
        self.server = server
        self.clock = VirtualClock()
        self.observer = Observer(self.clock, server)
        self.kernel = Kernel(plan, server, self.clock, self.observer)
        self._lives: dict[str, int] = {}
        self._callers: list[Caller] = []

    def run(self) -> None:
        """Run it to its end; raises Violation."""
        soon = mock.patch.multiple(telling, _SENDING_FOR_MS=SENDING_FOR_MS, _DROPPED_FOR_MS=DROPPED_FOR_MS)
        with in_force(self.clock, self.plan.seed), pages.of_seed(self.plan.seed), quiet(), soon:
            self.server.empty()
            self.server.now = self.clock.now
            self._configure()
            for actor in self.plan.of(Actor):
                self._start(actor)
            for disaster in self.plan.of(Disaster):
                self._schedule(disaster)
            self.kernel.run(lambda: False, EPOCH + ACTIVE)
            if not self.kernel.run(self._drained, EPOCH + ACTIVE + DRAINED_WITHIN):
                raise Violation(f"it is not drained: {self._left()}")
            self._check_end()

    def violation(self) -> Violation | None:
        """Run it to its end; return what was violated, or None."""
        try:
            self.run()
        except Violation as violation:
            violation.history = self.kernel.history
            return violation
        finally:
            self.kernel.close()
        return None

    def _configure(self) -> None:
        """Set the settings before anybody works."""
        application = TopicCalls("redis://simulated", None, None)
        for setting in self.plan.of(Setting):
            steps = application._queue_steps(setting.queue).configure(
                cast("ConfigChanges", {setting.name: setting.value})
            )
            self._at_once(steps)
            if setting.name != "partitions":
                self.observer.limits[setting.queue][setting.name] = setting.value
        if self.kernel.plan_has("publish"):
            self.kernel.bound = sorted({one.queue for one in self.plan.of(Action)})
            for queue in self.kernel.bound:
                self._at_once(application._topics.bind(queue, "order.*"))
        self.observer.after(None, ())

    def _at_once(self, steps: Any) -> Any:
        """Run steps while no other actor acts."""
        try:
            request = next(steps)
            while True:
                try:
                    if isinstance(request, Together):
                        reply = [self._at_once(one) for one in request.steps]
                    else:
                        reply = self.server.perform(request)
                except ReliqError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration as stop:
            return stop.value

    def _start(self, actor: Actor) -> None:
        life = self._lives[actor.name] = self._lives.get(actor.name, 0) + 1
        process = Process(actor.name, new_owner())
        process.skew = actor.options.get("skew", 0.0)
        self.kernel.processes.append(process)
        if life > 1:
            self.kernel.note(actor.name, f"starts again, life {life}")
        process.on_death = lambda: self.kernel.at(self.clock.now + RESTART_AFTER, lambda: self._start(actor))
        match actor.kind:
            case "worker":
                Worker(self.kernel, process, actor.options["queues"], LEASE, actor.options["limit"])
            case "monitor":
                monitor(self.kernel, process, actor.options["interval"])
            case _:
                process.on_death = lambda: None
                actions = [one for one in self.plan.of(Action) if one.actor == actor.name]
                self._callers.append(CALLERS[actor.kind](self.kernel, process, actions))

    # --- disasters ---

    def _schedule(self, disaster: Disaster) -> None:
        at, kernel = EPOCH + disaster.at, self.kernel
        if disaster.what == "restart":
            saved: list[Any] = []
            kernel.at(at - disaster.seconds, lambda: saved.extend(self.server.saved()))
            kernel.at(at, lambda: self._restart(saved, at - disaster.seconds))
        elif disaster.what == "full":
            kernel.at(at, lambda: self._fill(full=True))
            kernel.at(at + disaster.seconds, lambda: self._fill(full=False))
        elif disaster.what == "script lost":
            kernel.at(at, lambda: self._lose_script(disaster.seconds))
        else:
            kernel.at(at, lambda: self._go_away(disaster.seconds))

    def _restart(self, saved: list[Any], saved_at: float) -> None:
        self.kernel.note("the server", f"RESTARTED with its state of {saved_at - EPOCH:.3f}")
        self.server.load(saved)
        self.observer.restarts(saved_at)
        self.kernel.disconnect_all()

    def _fill(self, *, full: bool) -> None:
        self.kernel.note("the server", "FULL" if full else "has memory again")
        self.observer.disturbed = True
        self.server.fill(full)

    def _lose_script(self, seconds: float) -> None:
        self.kernel.note("the server", "WITHOUT A SCRIPT of the next transaction that can be repeated")
        self.kernel.after_missing = lambda: self._go_away(seconds)

    def _go_away(self, seconds: float) -> None:
        self.kernel.note("the server", f"AWAY for {seconds:.3f} s")
        self.observer.disturbed = True
        self.kernel.away_until = self.clock.now + seconds
        self.kernel.disconnect_all()

    # --- the end ---

    def _drained(self) -> bool:
        if any(one.task.process.alive and not one.task.ended for one in self._callers):
            return False
        if any(one.task.process.late_until >= self.kernel.clock.now for one in self._callers):  # perhaps a pause
            return False
        self._resume_all()
        self._signal_all()
        if self._awaited():
            return False
        stuck, lost = set(self.observer.graphs.waiting()), set(self.observer.graphs.lost())
        if not all(place.state == DEAD or one in stuck | lost for one, place in self.observer.where.items()):
            return False
        if stuck:
            self._judge_dead()
            return False
        return not self._unsettled()

    def _unsettled(self) -> list[str]:
        """Return the queues whose number of partitions still changes, or that keep an empty one; unfinished flows."""
        return [
            f"the partitions of {queue} are {layout}"
            for queue, layout in self.observer.layouts.items()
            if layout.moving or (layout.retired and self._may_be_forgotten(layout.every(queue)[-1]))
        ] + self.observer.graphs.unfinished()

    def _may_be_forgotten(self, partition: str) -> bool:
        """Whether nothing is kept in a partition, not even deduplication keys, or flows that were given up."""
        keys = QueueKeys(partition)
        kept = self.server.length("XLEN", keys.history) + self.server.length("STRLEN", keys.outputs)
        kept_on = {b"flowing", b"dedup_until"}.intersection(self.server.fields(keys.config))
        return not (self.observer.there(partition) or kept or kept_on)

    def _awaited(self) -> list[str]:
        """Return the messages that reliq itself sends and that have not come yet: ticks, and the ends of batches."""
        stories = self.observer.stories
        came = {message for message in self.observer.expected if message in stories and stories[message].entered_at}
        return [] if self.observer.restarted else sorted(identity for _, identity in self.observer.expected - came)

    def _resume_all(self) -> None:
        """An operator who was killed resumes nothing."""
        if not self._lives.get("the end"):
            self._lives["the end"] = 1
            application = TopicCalls("redis://simulated", None, None)
            for queue in self._queues():
                self._at_once(application._queue_steps(queue).resume())

    def _signal_all(self) -> None:
        """Give what is waited for to those that wait for ever."""
        for message, signal in self.observer.records.waiting():
            queue, identity = message
            steps = SignalSteps(TopicCalls("redis://simulated", None, None)._queue_steps(queue).homes)
            self.observer.records.offers(message, signal, "at last")
            taken = self._at_once(steps.give(identity, signal, "at last"))
            self.kernel.note("the end", f"signal {signal} of {identity}")
            self.observer.after(None, ["signal"])
            self.observer.records.answered(message, signal, "at last", taken=taken)

    def _judge_dead(self) -> None:
        """Put the dead letters back for which others wait, the second time delete them; those others go on, or die."""
        self._lives["the judge"] = self._lives.get("the judge", 0) + 1
        redrives = self._lives["the judge"] == 1 and self.plan.seed % 2 == 0
        for queue in self._queues():
            letters = DeadLetterQueue(TopicCalls("redis://simulated", None, None)._queue_steps(queue).homes)
            if redrives:
                self._at_once(letters.redrive(Filter(), RedriveOptions()))
            else:
                self._at_once(letters.purge(Filter(), everything=True))
            self.kernel.note("the end", f"the dead letters of {queue} are {'put back' if redrives else 'deleted'}")
            self.observer.after(None, ["redrive", "discard"])

    def _queues(self) -> list[str]:
        return sorted({queue for queue, _ in self.observer.stories} | {one.queue for one in self.plan.of(Setting)})

    def _left(self) -> str:
        left = [f"{identity} in {place.state}" for (_, identity), place in self.observer.where.items()]
        busy = [one.task.name for one in self._callers if one.task.process.alive and not one.task.ended]
        awaited = [f"{identity} has not come" for identity in self._awaited()]
        waiting = sorted(one for one in left if not one.endswith(DEAD))
        return ", ".join([*waiting, *busy, *awaited, *self._unsettled()])

    def _check_end(self) -> None:
        observer = self.observer
        for (queue, identity), story in observer.stories.items():
            there = (queue, identity) in observer.where
            entered = story.entered_at is not None
            if story.status == "answered" and not (entered or story.lost):
                raise Violation(f"{identity} was sent to {queue}, and never came")
            if entered and not there and not story.gone:
                raise Violation(f"{identity} of {queue} is nowhere")
        observer.outputs.check()
        observer.graphs.check_end()
        for queue in self._queues():
            for partition in observer.partitions(queue):
                self._check_rest(partition)
            observer.books.check_rate(queue)
            observer.check_given_up(queue)

    def _check_rest(self, queue: str) -> None:
        """Nothing is left behind in a partition of a queue that is drained but its dead letters."""
        keys = QueueKeys(queue)
        config = self.server.fields(keys.config)
        there = self.observer.there(queue)
        large = sum(self.observer.stories[message].large for message in there)
        lost = [one for one in self.observer.graphs.lost() if one in there]
        for what, command, key, most in (
            ("bodies", "HLEN", keys.bodies, large),
            ("holders of keys", "HLEN", keys.active, 0),
            ("waiting messages", "ZCARD", keys.waiting, len(lost)),
        ):
            found = self.server.length(command, key)
            if found != most:
                raise Violation(f"{found} {what} are left in {queue}, not {most}")
        followed, early = self.server.fields(keys.followed), self.server.members(keys.waits)
        self.observer.records.check_rest(queue, followed, config, early)
        self.observer.graphs.check_rest(queue, followed, config)
        if missing := self.observer.books.missing(queue):
            raise Violation(f"the books of {queue} do not balance at the end: {missing} missing")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: what goes wrong is planned."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate(plan: Plan, server: SimulatedRedis) -> Violation | None:
    """Run a plan; return what was violated, or None."""
    return Simulation(plan, server).violation()
