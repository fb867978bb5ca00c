"""What a durable handler does: the steps of the library, its acts one after another, on the simulation's clock."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reliq.contract import values
from reliq.errors import ReliqError, SignalTimeout
from reliq.features.output import steps as output
from reliq.features.steps import steps as durable
from reliq.features.steps.driving import Call
from reliq.features.steps.model import Missing, Nap, Step, StepFailed, Wait
from reliq.model.backoff import steps as delays
from reliq.model.message import Message
from reliq.ops import Sleep, Steps, Together
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.holds import of_handler
from tests.simulation.outputs import Outputs
from tests.simulation.records import Records
from tests.simulation.stories import Story, Violation

STEP_RETRIES = delays(0.2, 0.3)  #: seconds before each further try of a step
_RETRIES = 2
TIMEOUT = 0.7  #: seconds of a wait that is short


@dataclass(frozen=True, slots=True)
class Apart(Together):
    """Steps on a connection of their own, with calls that are repeated for so long, as those of a handler are."""

    timeout: float = values.SEND_TIMEOUT


class DurableHandler:
    """One run of the handler of a message."""

    def __init__(
        self,
        consumer: ConsumerSteps,
        message: Message,
        story: Story,
        records: Records,
        outputs: Outputs,
        crash: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._message = message
        self._identity = (message.queue, message.id)
        self._script = story.script
        self._records = records
        self._outputs = outputs
        self._run = len(story.runs)
        self._chunks = 0
        self._crash = crash

    def run(self) -> Steps[None]:
        """Do all acts; raises what a handler would raise."""
        for what, name, seconds in self._script:
            words, free = what.split(" "), what.endswith("free")
            match words[0]:
                case "step":
                    yield from self._step(name, words[1:], seconds)
                case "sleep":
                    yield from self._act(Nap(name, seconds, free))
                    self._records.slept(self._identity, name)
                case "emit":
                    yield from self._emit(seconds)
                case "wait":
                    yield from self._wait(name, TIMEOUT if "short" in words else None, free)

    def _step(self, name: str, words: list[str], seconds: float) -> Steps[None]:
        once, fails = "once" in words, "fails" in words
        tries = (1 + _RETRIES if fails else 1) if once else float("inf")

        def call() -> Steps[str]:
            count = self._records.begins(self._identity, name, tries, self._run)
            yield Sleep(seconds)
            if "crashes" in words and count == 1:
                self._crash()
            if ("raises" in words and count == 1) or (fails and count <= (9 if "often" in words else _RETRIES)):
                raise RuntimeError("as planned")
            return f"{name} {count}"

        retry = STEP_RETRIES if fails else None
        try:
            value = yield from self._act(Step(name, call, (), retry=retry, at_most_once=once))
        except StepFailed:
            self._records.failed(self._identity, name, once=once)
            raise
        self._records.returned(self._identity, name, value, self._run)

    def _wait(self, signal: str, timeout: float | None, free: bool) -> Steps[None]:
        self._records.waits(self._identity, signal, timeout)
        try:
            value = yield from self._act(Wait(signal, timeout, Missing, free))
        except SignalTimeout:
            value = None
        self._records.got(self._identity, signal, value)

    def _emit(self, seconds: float) -> Steps[None]:
        """Do what `Message.emit` does, twice."""
        for _ in range(2):
            self._chunks += 1
            hold = of_handler(self._consumer, self._message)
            chunk = f"j{self._run}.{self._chunks}"
            (answer,) = yield Apart(
                [output.append(hold, output.next_token(self._consumer, self._message), chunk.encode())]
            )
            if isinstance(answer, ReliqError):
                raise answer
            self._outputs.emitted(self._identity, (self._run, self._chunks))
            yield Sleep(seconds)

    def _act(self, asked: Any) -> Steps[Any]:
        """Do what `Message.step`, `sleep` and `wait` do."""
        hand = durable.Hand(self._consumer, self._message)
        place = 0 if isinstance(asked, Wait) else hand.book.ask(asked.name)
        doing = durable._DOING[type(asked)](hand, asked, place)
        advance: Callable[[], Any] = functools.partial(next, doing)
        while True:
            try:
                act = advance()
            except StopIteration as end:
                return end.value
            try:
                done = yield from self._done(act)
            except Violation:
                raise
            except Exception as error:
                advance = functools.partial(doing.throw, error)
            else:
                advance = functools.partial(doing.send, done)

    def _done(self, act: Any) -> Steps[Any]:
        if isinstance(act, Call):
            return (yield from act.function(*act.arguments))
        (answer,) = yield Apart([act])
        if isinstance(answer, ReliqError):
            raise answer
        return answer
