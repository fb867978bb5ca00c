"""The processes of a campaign: producers, workers, monitors and the HTTP service.

They come from a fork server that has imported reliq once: a worker costs 20 ms to start in place of 350, and a campaign
starts thousands. Each runs the code of its `reliq` command, with its own connections.
"""

import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.campaign import tasks
from tests.campaign.clock import Clock
from tests.campaign.names import FOLDER, OWN_PID, PROCESS, WORK
from tests.campaign.other_version import OtherVersion
from tests.support import javascript

APP = "tests.campaign.app:app"
_PRELOADED = ["reliq.cli.main", "reliq.worker", "reliq_monitor", "tests.campaign.producer"]


@dataclass(frozen=True, slots=True)
class Told:
    """What a process is told when it is started."""

    name: str
    folder: Path
    url: str
    arguments: tuple[str, ...] = ()  #: of the `reliq` command; none for a producer
    work: float = 0.001  #: seconds that a message takes in a worker
    send: Mapping[str, Any] = field(default_factory=dict)  #: of a producer: what `System.start_producer` puts there
    code: Path | None = None  #: the folder with another version of reliq, which it runs; None: this version


class Actor:
    """A process that may be killed, paused and stopped in order."""

    def __init__(self, target: Callable[[Told], None], told: Told) -> None:
        self.name = told.name
        self.told = told
        self.clock = Clock(_clock_file(told))
        self._process = OtherVersion(target, told) if told.code else _forked(target, told)

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def ended(self) -> bool:
        return self._process.exitcode is not None

    def kill(self) -> None:
        """Kill it with SIGKILL and wait for its end."""
        self._process.kill()
        self._process.join()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def tell_where_it_is(self) -> None:
        """Have it write the stacks of its threads to the log of the processes."""
        if not self.ended:
            os.kill(self.pid, signal.SIGUSR2)

    def ask_to_stop(self) -> None:
        if not self.ended:
            self._process.terminate()

    def wait(self, seconds: float = 40.0) -> bool:
        """Wait for its end; returns whether it came in time. If not, the process is killed."""
        self._process.join(seconds)
        if in_time := self.ended:
            return in_time
        self.kill()
        return False


def _forked(target: Callable[[Told], None], told: Told) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    process = context.Process(target=run, args=(target, told), name=told.name)
    process.start()
    return process


def run(target: Callable[[Told], None], told: Told) -> None:
    """Run in the new process: its own log, and an end with the campaign."""
    log = os.open(told.folder / "processes.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR2, file=log)
    Clock(_clock_file(told)).rule()
    os.setpgid(0, 0)  # a Ctrl-C reaches the campaign alone, which stops its processes in order
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    target(told)


def _clock_file(told: Told) -> Path:
    return told.folder / f"{told.name}.clock"


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def service(told: Told) -> None:
    """Run a `reliq` command: worker, monitor or api."""
    from reliq.cli import main

    os.environ.update({
        "RELIQ_URL": told.url, "RELIQ_NO_AUTH": "1", FOLDER: str(told.folder), PROCESS: told.name, WORK: str(told.work),
        OWN_PID: str(os.getpid()),
    })  # fmt: skip
    sys.exit(main.main(told.arguments))


def producer(told: Told) -> None:
    """Send until all is sent, or until SIGTERM."""
    from tests.campaign.history import History
    from tests.campaign.producer import DirectSender, Producer, Sender
    from tests.campaign.producer_http import HttpSender
    from tests.campaign.sqs import SqsSender

    send = told.send
    source = tasks.Source(told.name, send["seed"], send["mix"])
    sender: Sender
    if send.get("endpoints"):
        sender = SqsSender(send["endpoints"])
    elif send["http"]:
        sender = HttpSender(told.url)
    else:
        sender = DirectSender(told.url, send["durability"], send["send_timeout"])
    history = History(told.folder, told.name)
    running = Producer(sender, source, history, send["seed"], send["rate"], send["batch"])
    _stop_when_asked(running)
    running.run(send["count"])


def sqs_consumer(told: Told) -> None:
    """Consume from SQS endpoints until SIGTERM."""
    from tests.campaign.history import History
    from tests.campaign.sqs import SqsConsumer

    running = SqsConsumer(told.send["endpoints"], History(told.folder, told.name), told.send["visibility"], told.work)
    _stop_when_asked(running)
    running.run()


def javascript_consumer(told: Told) -> None:
    """The same with the SDK of JavaScript: the process becomes Node.js."""
    from tests.campaign.history import SUFFIX

    options = {
        **told.send, "queue": tasks.QUEUE, "work": told.work, "history": str(told.folder / f"{told.name}{SUFFIX}"),
    }  # fmt: skip
    program = javascript.folder() / "consumer.mjs"
    os.execvp("node", ["node", str(program), json.dumps(options)])


def _stop_when_asked(running: Any) -> None:
    def stop(number: int, frame: object) -> None:
        running.stopping = True

    signal.signal(signal.SIGTERM, stop)
