"""Redis Sentinel: which server is the master, and whether a failover from it is under way.

A deposed master goes on answering for about ten seconds, and the other replicas confirm its writes. So all sentinels
are asked all the time, each by its own thread, and the answer with the highest epoch counts, not the first answer.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reliq import forks
from reliq.contract import values
from reliq.errors import UnknownCommand
from reliq.ops.topology import Node, address_of
from reliq.transport.errors import CLOSED_BY_SERVER, TIMED_OUT, ConnectionLost, connection_ended, failed, redis_errors
from reliq.transport.resp import pack

log = logging.getLogger("reliq.sentinel")

_EVERY = 0.25  #: seconds between two questions to a sentinel
_VOUCH = 1.0  #: seconds that the sentinels may take to confirm a master
_HEIR = 3.0  #: seconds to wait for the successor of a master before its connection is tried again


@dataclass(frozen=True, slots=True)
class Vote:
    """The answer of one sentinel."""

    epoch: int
    master: Node
    leaving: bool  #: a failover from this master is under way, and its successor is not known yet


class View(NamedTuple):
    """What one sentinel says now. `master`: None if it names none, or does not answer, which `problem` says then."""

    sentinel: Node
    master: Node | None
    epoch: int = 0
    problem: str = ""


class _Panel:
    """The sentinels as seen by one process."""

    def __init__(self, nodes: Sequence[Node], service: str, connect: Callable[[Node], Any]) -> None:
        self.changed = threading.Condition()
        self.wanted = 1  #: the number of the latest question
        self.stopped = False
        self.voters = [_Voter(self, node, service, connect) for node in nodes]

    def ask(self) -> int:
        """Ask all sentinels again now; return the number of the question. The caller must hold the lock."""
        self.wanted += 1
        self.changed.notify_all()
        return self.wanted

    def best(self) -> Vote | None:
        votes = [voter.vote for voter in self.voters if voter.vote is not None]
        return max(votes, key=lambda vote: vote.epoch, default=None)

    def answered(self, number: int) -> bool:
        """Whether most sentinels have answered this question, or all of them have been asked."""
        answered = sum(voter.answered >= number for voter in self.voters)
        return 2 * answered > len(self.voters) or all(voter.tried >= number for voter in self.voters)

    def all_answered(self, number: int) -> bool:
        """Whether all sentinels that answered the previous question have answered: any of them may lead a failover."""
        return self.answered(number) and all(voter.tried >= number or voter.silent for voter in self.voters)

    def leaves(self, master: Node) -> bool:
        """Whether a failover from this master is under way and its successor is not known yet."""
        best = self.best()
        return best is not None and best.master == master and any(one.vote and one.vote.leaving for one in self.voters)

    def why_none(self, service: str) -> str:
        """Return why no master is known."""
        problems = [voter.problem for voter in self.voters]
        if all(problems):
            return f"no sentinel answers: {problems[0]}"
        return f"no sentinel names a master of {service!r}"

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


class _Voter(threading.Thread):
    """Asks one sentinel repeatedly."""

    def __init__(self, panel: _Panel, node: Node, service: str, connect: Callable[[Node], Any]) -> None:
        super().__init__(name=f"reliq-sentinel-{address_of(node)}", daemon=True)
        self._panel, self._node, self._connect = panel, node, connect
        self._question = pack([("SENTINEL", "MASTER", service), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)])
        self._connection: Any = None
        self.on_vote: Callable[[], None] = lambda: None
        self.vote: Vote | None = None
        self.problem = ""  #: why the sentinel did not answer
        self.tried = self.answered = 0  #: numbers of questions

    def view(self) -> View:
        if self.vote is None or self.silent:
            return View(self._node, None, problem=self.problem or "it names no master")
        return View(self._node, self.vote.master, self.vote.epoch)

    @property
    def silent(self) -> bool:
        """Whether the sentinel did not answer the latest question."""
        return self.answered < self.tried

    def run(self) -> None:
        panel = self._panel
        while not panel.stopped:
            number = panel.wanted
            vote = self._ask()
            with panel.changed:
                self.tried = number
                self.vote = vote or self.vote  # a silent sentinel may have reported the highest epoch
                self.answered = number if vote else self.answered
                panel.changed.notify_all()
            self.on_vote()
            with panel.changed:
                panel.changed.wait_for(lambda asked=number: panel.stopped or panel.wanted > asked, _EVERY)  # type: ignore[misc]
        self._close()

    def _ask(self) -> Vote | None:
        try:
            if self._connection is None:
                self._connection = self._connect(self._node)
                self._connection.connect()
            self._connection.send_packed_command(self._question)
            state, master = self._connection.read_response(), self._connection.read_response()
            self.problem = ""
            return _vote(state, master)
        except (redis_errors().RedisError, *connection_ended(), ValueError, KeyError) as error:
            self.problem = _problem(error, self._connection)
            log.debug("sentinel %s:%d does not answer: %s", *self._node, self.problem)
            self._close()
            return None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


def _problem(error: Exception, connection: Any) -> str:
    """Return why a sentinel gave no answer; empty: it knows no master of that name."""
    if "no such master" in str(error).lower():
        return ""
    if isinstance(error, redis_errors().AuthenticationError):
        return "the login is refused: that of the sentinels is ?sentinel_username=...&sentinel_password=... in the URL"
    why = failed(error, sent=False)
    if isinstance(why, UnknownCommand):
        return "it is no sentinel: the URL has the sentinels' addresses, not those of the Redis servers"
    tls = hasattr(connection, "cert_reqs")  # of an SSLConnection
    if not tls and str(why) in CLOSED_BY_SERVER:
        return f"{why}; if this port is for TLS, the URL begins with rediss+sentinel:// and has ?sentinel_tls=true"
    if tls and str(why) == TIMED_OUT:
        return f"{why}; if this port is not for TLS, the URL must not have ?sentinel_tls=true"
    return str(why)


def _vote(state: list[bytes], master: list[bytes] | None) -> Vote | None:
    if master is None:
        return None
    fields = dict(zip(state[::2], state[1::2], strict=False))
    node = (master[0].decode(), int(master[1]))
    former = (fields[b"ip"].decode(), int(fields[b"port"]))
    under_way = b"failover_in_progress" in fields[b"flags"]
    return Vote(int(fields[b"config-epoch"]), node, under_way and node == former)


class Sentinels:
    """The master as named by the sentinels. Thread-safe; a forked child asks for itself."""

    def __init__(self, nodes: Sequence[Node], service: str, connect: Callable[[Node], Any]) -> None:
        self._nodes, self._service, self._connect = nodes, service, connect
        self._panel: _Panel | None = None
        self._end: Any = None  #: stops the panel, at the latest when this object is gone
        self._mark = forks.mark()
        self.on_change: Callable[[], None] = lambda: None  #: called from any thread when the master changes

    def master(self) -> Node:
        """Return the master's address; raises ConnectionLost."""
        panel = self._here()
        with panel.changed:
            panel.changed.wait_for(lambda: panel.answered(1), values.SOCKET_MARGIN)
            best = panel.best()
        if best is None:
            raise ConnectionLost(sent=False, cause=panel.why_none(self._service))
        return best.master

    def vouch(self, master: Node) -> bool:
        """Whether this is the master and no failover from it was under way before the call; asks the sentinels now."""
        panel = self._here()
        with panel.changed:
            number = panel.ask()
            panel.changed.wait_for(lambda: panel.all_answered(number), _VOUCH)
            fresh = [voter.vote for voter in panel.voters if voter.answered >= number and voter.vote is not None]
            best = panel.best()
            if any(vote.leaving for vote in fresh):
                # Writes to it now would put other replicas ahead of its successor: each would need a full resync.
                panel.changed.wait_for(lambda: not panel.leaves(master), _HEIR)
                return False
        return 2 * len(fresh) > len(panel.voters) and best is not None and best.master == master

    def views(self) -> list[View]:
        """Return what each sentinel says; asks all of them now."""
        panel = self._here()
        with panel.changed:
            number = panel.ask()
            panel.changed.wait_for(lambda: all(voter.tried >= number for voter in panel.voters), values.SOCKET_MARGIN)
            return [voter.view() for voter in panel.voters]

    def ask_again(self) -> None:
        """Ask at once, because a server has refused a write as it is not the master."""
        panel = self._here()
        with panel.changed:
            panel.ask()

    def close(self) -> None:
        """Stop asking; the next call starts again."""
        if self._panel is not None and self._mark == forks.mark():
            self._end()
        self._panel = None

    def _here(self) -> _Panel:
        mark = forks.mark()
        if self._panel is None or self._mark != mark:
            panel = _Panel(self._nodes, self._service, self._connect)
            watch = _Watch(self, panel)
            for voter in panel.voters:
                voter.on_vote = watch
                voter.start()
            self._end = weakref.finalize(self, panel.stop)
            self._end.atexit = False  # at its end a forked child might wait for ever
            self._panel, self._mark = panel, mark
        return self._panel


class _Watch:
    """Notifies the owner of the sentinels, as long as it exists, of a new master."""

    def __init__(self, sentinels: Sentinels, panel: _Panel) -> None:
        self._sentinels, self._panel = weakref.ref(sentinels), panel
        self._master: Node | None = None

    def __call__(self) -> None:
        with self._panel.changed:
            best = self._panel.best()
            if best is None or best.master == self._master:
                return
            first, self._master = self._master is None, best.master
        sentinels = self._sentinels()
        if not first and sentinels is not None:
            log.info("master=%s:%d epoch=%d", *best.master, best.epoch)
            sentinels.on_change()
