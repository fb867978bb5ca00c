"""The parent of several worker processes: starts them, restarts dead ones and returns their messages at once."""

import logging
import math
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from reliq.runtime import startup

log = logging.getLogger("reliq.supervisor")

_LOOK_EVERY = 0.05
_QUICK = 5.0  #: seconds; a child that dies sooner is restarted after a pause that grows
_PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0)
_AFTER_GRACE = 5.0  #: seconds after the grace until a child is killed
BAD_USAGE = 2  #: a child's exit status: its module does not import; starting it again would not help
TOLD_TO_STOP = 3  #: a child's exit status: a person has told it to stop, so it is not started again


class Child:
    """A worker process. It stops by itself when its parent dies, because its standard input then ends."""

    def __init__(self, owner: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """`owner`: the id under which it holds messages."""
        self.owner = owner
        self.started_at = self.seen_at = time.monotonic()
        # A session of its own: a Ctrl-C in the terminal reaches only the parent, which passes it on.
        with startup.signals_held_back():
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        status = self.process.poll()
        if status is None:
            self.seen_at = time.monotonic()
        return status

    def signal(self, number: int) -> None:
        if self.poll() is None:
            self.process.send_signal(number)


class Supervisor:
    """Keeps a number of worker processes running."""

    def __init__(
        self, start: Callable[[int], Child], processes: int, grace: float, take_back: Callable[[str, float], int]
    ) -> None:
        """`start(place)` starts a child; `take_back(owner, last_seen)` returns the messages of a dead one.

        It is called in a thread of its own; if it raises, the monitor returns them later. `place`: from 0;
        `last_seen`: by the monotonic clock.
        """
        self._start = start
        self._grace = grace
        self._take_back = take_back
        self._children: list[Child | None] = [None] * processes
        self._not_before = [0.0] * processes
        self._quick_deaths = [0] * processes
        self._burials: list[threading.Thread] = []
        self._ended = 0  #: children that a person has told to stop: they are not started again
        self._stops = 0
        self._wake = threading.Event()

    def run(self) -> int:
        """Work until `stop`; return the exit status: 0, or 2 if the application cannot be imported."""
        status = 0
        while not self._stops and status == 0 and self._ended < len(self._children):
            for place in range(len(self._children)):
                status = max(status, self._look_after(place))
            self._wake.wait(_LOOK_EVERY)
        self._shut_down()
        return status

    def stop(self) -> None:
        """Ask all children to end: the first time within their grace, the second time at once."""
        self._stops += 1
        self._wake.set()

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT, including a signal that arrived before."""
        startup.take_over(self.stop)

    def _look_after(self, place: int) -> int:
        child = self._children[place]
        if child is None:
            if time.monotonic() >= self._not_before[place]:
                self._children[place] = self._started(place)
            return 0
        status = child.poll()
        if status is None:
            return 0
        self._children[place] = None
        if status == BAD_USAGE:
            return BAD_USAGE
        if status == TOLD_TO_STOP:
            self._ended += 1
            self._not_before[place] = math.inf
            return 0
        self._bury(child)
        self._pause(place, quick=time.monotonic() - child.started_at < _QUICK)
        return 0

    def _started(self, place: int) -> Child | None:
        """Start a child; None, and another try soon, if the system has no room for it: the others work on."""
        try:
            return self._start(place)
        except OSError as error:
            log.warning("not_started error=%s: tried again", error)
            self._pause(place, quick=True)
            return None

    def _pause(self, place: int, quick: bool) -> None:
        """Let the next start of a child wait, the longer the more of them were in vain."""
        self._quick_deaths[place] = self._quick_deaths[place] + 1 if quick else 0
        pause = _PAUSES[min(self._quick_deaths[place], len(_PAUSES) - 1)]
        self._not_before[place] = time.monotonic() + pause

    def _bury(self, child: Child) -> None:
        """Return the messages of a dead child, beside all else: while Redis is away, each return waits for it."""
        burial = threading.Thread(target=self._buried, args=(child,), name="reliq-burial", daemon=True)
        try:
            burial.start()
        except RuntimeError:  # the system has no room for another thread
            burial.run()
        self._burials = [one for one in [*self._burials, burial] if one.is_alive()]

    def _buried(self, child: Child) -> None:
        status = child.process.returncode
        how = "signal" if status < 0 else "status"
        try:
            returned = self._take_back(child.owner, child.seen_at)
        except Exception as error:
            text = f"died worker=%s {how}=%d error=%s: the monitor returns its messages when the lease ends"
            log.warning(text, child.owner, abs(status), error)
        else:
            text = f"died worker=%s {how}=%d returned=%d"
            log.warning(text, child.owner, abs(status), returned)

    def _shut_down(self) -> None:
        children = [child for child in self._children if child is not None]
        for child in children:
            child.signal(signal.SIGTERM)
        hurried, until = False, time.monotonic() + self._grace + _AFTER_GRACE
        while any([child.poll() is None for child in children]):  # noqa: C419  each of them is looked at
            if self._stops > 1 and not hurried:
                hurried = True
                for child in children:
                    child.signal(signal.SIGTERM)
            if time.monotonic() > until:
                for child in children:
                    child.signal(signal.SIGKILL)
            time.sleep(_LOOK_EVERY)
        for child in children:
            if child.process.returncode not in (0, BAD_USAGE, TOLD_TO_STOP):
                self._bury(child)
        for burial in self._burials:
            burial.join()
