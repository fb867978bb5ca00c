"""Explores every order of steps, crashes and lost replies of a few actors, on a real Redis, and looks for violations.

An actor is a generator of the real steps (the ones that Store.run drives), so the explored protocol is the shipped one.
A generator cannot be copied; it is made anew and sent the replies it had. A state is what Redis holds, where each actor
stands (the lines its frames are at and their variables), and how many faults are left; each is visited once. Before
every step Redis is set to the state it starts from, with the WATCHes of the actors in it.
"""

import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import redis

from reliq.errors import OutcomeUnknown
from reliq.holdings import Holdings
from reliq.message import Message
from reliq.ops import Claimed, Op, Request, Transaction, Watch, command
from reliq.store import Link, Store
from tests.state import KEYS, element, name_of

ALIVE, OVER, NOW = 10**15, 1, 1_700_000_000_000
LOST_REPLY = "the reply was lost"
LOST_REQUEST = "the request was lost"

#: Everything a state is made of, in one round trip.
_DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', 'reliq:{q}:*')) do
  local kind = redis.call('TYPE', key)['ok']
  local value
  if kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'string' then value = redis.call('GET', key)
  elseif string.find(key, ':counters', 1, true) then value = redis.call('HGET', key, 'acked') or '0' end
  if value then found[#found + 1] = {key, value} end
end
return found
"""

Events = list[str]
Actor = Callable[[Events], Generator[Request, Any, None]]


class Violation(AssertionError):
    """What must never happen, with the steps that led there."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where an actor has got to: what it asks next (None: it has ended), what it did, and its frames."""

    request: Request | None
    events: tuple[str, ...]
    frames: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Life:
    """An actor: everything it was told so far, and where that brought it. Equal when it stands at the same place."""

    told: tuple[Any, ...] = dataclasses.field(default=(), compare=False)
    frames: tuple[Any, ...] = ()
    crashed: bool = False
    watching: tuple[str, ...] = ()
    dirty: bool = False  #: a key it watches was touched


@dataclasses.dataclass(frozen=True)
class State:
    lists: tuple[tuple[str, tuple[bytes, ...]], ...]
    leases: tuple[tuple[str, bool], ...]
    consumers: tuple[str, ...]
    acked: int
    lives: tuple[Life, ...]
    crashes: int  #: faults that may still happen
    losses: int
    expiries: int

    def copies(self, prefix: str = "") -> int:
        return sum(len(items) for key, items in self.lists if key.startswith(prefix))


class Explorer:
    """`check(before, after, events...)` raises Violation; `settled(state, self)` judges where nobody can go on."""

    def __init__(
        self,
        url: str,
        actors: list[Actor],
        check: Callable[[State, State, list[tuple[str, ...]], list[tuple[str, ...]]], None],
        settled: Callable[[State, "Explorer"], None],
        patch_nonce: Callable[[Callable[[], int]], None],
    ) -> None:
        self.redis = redis.Redis.from_url(url)
        self.store = Store(url)
        self._actors = actors
        self._check = check
        self._settled = settled
        self._link = self.store.link()
        self._links = [self.store.link() for _ in actors]
        self._patch_nonce = patch_nonce
        self._standings: dict[tuple[int, tuple[Any, ...]], Standing] = {}
        self.states = 0
        self.transitions = 0

    def explore(self, crashes: int, losses: int, expiries: int, most: int = 1_000_000) -> int:
        """Visit every state reachable with these faults; how many there are."""
        start = State(
            lists=((KEYS.messages, (element("a"),)),),
            leases=(),
            consumers=(),
            acked=0,
            lives=tuple(self._life(place, ()) for place in range(len(self._actors))),
            crashes=crashes,
            losses=losses,
            expiries=expiries,
        )
        seen = {start}
        stack: list[tuple[State, tuple[str, ...]]] = [(start, ())]
        while stack:
            state, path = stack.pop()
            moved = False
            for label, after in self._next(state):
                moved = moved or not label.startswith(("crash", "expire"))
                self.transitions += 1
                trail = (*path, label)
                try:
                    self._check(state, after, self._events(state), self._events(after))
                except Violation as error:
                    raise Violation(f"{error} after: {' | '.join(trail)}") from None
                if after not in seen:
                    assert len(seen) < most, f"more than {most} states"
                    seen.add(after)
                    stack.append((after, trail))
            if not moved:
                try:
                    self._settled(state, self)
                except Violation as error:
                    raise Violation(f"{error} after: {' | '.join(path)}") from None
        self.states = len(seen)
        return self.states

    def _next(self, state: State) -> Iterator[tuple[str, State]]:
        for place, life in enumerate(state.lives):
            if life.crashed:
                continue
            request = self._standing(place, life).request
            if request is None:
                continue
            name = f"{place}:{_label(request)}"
            yield name, self._step(state, place, request, None)
            if state.losses:
                yield f"{name} reply lost", self._step(state, place, request, LOST_REPLY)
                yield f"{name} request lost", self._step(state, place, request, LOST_REQUEST)
            if state.crashes:
                dead = Life(life.told, ("dead",), crashed=True)
                yield f"crash {place}", self._with_life(state, place, dead, crashes=state.crashes - 1)
        if state.expiries:
            for consumer, alive in state.leases:
                if alive:
                    yield f"expire {consumer}", self._expired(state, consumer)

    # --- actors ---

    def _standing(self, place: int, life: Life) -> Standing:
        return self._standing_after(place, life.told)

    def _standing_after(self, place: int, told: tuple[Any, ...]) -> Standing:
        """Made anew and told again; remembered, because every state asks it of every actor."""
        known = self._standings.get((place, told))
        if known is None:
            known = self._standings[place, told] = self._replay(place, told)
        return known

    def _replay(self, place: int, told: tuple[Any, ...]) -> Standing:
        events: Events = []
        drawn = itertools.count()
        self._patch_nonce(lambda: 1000 * (place + 1) + next(drawn))
        steps = self._actors[place](events)
        try:
            request = next(steps)
            for answer in told:
                if answer in (LOST_REPLY, LOST_REQUEST):
                    request = steps.throw(OutcomeUnknown(answer))
                else:
                    request = steps.send(_thawed(answer))
        except StopIteration:
            return Standing(None, tuple(events), ("ended", *events))
        return Standing(request, tuple(events), (next(drawn), *events, *_frames(steps)))

    def _life(self, place: int, told: tuple[Any, ...], **fields: Any) -> Life:
        return Life(told, self._standing_after(place, told).frames, **fields)

    def _events(self, state: State) -> list[tuple[str, ...]]:
        return [self._standing(place, life).events for place, life in enumerate(state.lives)]

    # --- Redis ---

    def _step(self, state: State, place: int, request: Request, fault: str | None) -> State:
        life = state.lives[place]
        answer: Any = fault
        self._restore(state)
        if fault != LOST_REQUEST:
            reply = self.store.call(request, self._links[place])
            answer = _frozen(reply) if fault is None else fault
        watching: tuple[str, ...] = ()
        if isinstance(request, Watch):
            watching = request.keys
        elif not isinstance(request, Transaction):
            watching = life.watching
        if fault is not None:
            watching = ()  # the connection is gone, and its WATCH with it
        dirty = bool(watching) and self._is_dirty(place)
        lives = list(state.lives)
        lives[place] = self._life(place, (*life.told, answer), watching=watching, dirty=dirty)
        for other, theirs in enumerate(lives):
            if other != place and theirs.watching and not theirs.crashed and not theirs.dirty:
                lives[other] = dataclasses.replace(theirs, dirty=self._is_dirty(other))
        return self._snapshot(tuple(lives), state, losses=state.losses - (fault is not None))

    def _is_dirty(self, place: int) -> bool:
        """Ask the server: would this actor's transaction be refused now?"""
        link = self._links[place]
        return self.store.call(Transaction((command("PING"),)), link) is None

    def _restore(self, state: State) -> None:
        writes = [command("FLUSHDB")]
        writes += [command("RPUSH", key, *items) for key, items in state.lists]
        writes += [command("SET", KEYS.lease(one), ALIVE if alive else OVER) for one, alive in state.leases]
        if state.consumers:
            writes.append(command("SADD", KEYS.consumers, *state.consumers))
        if state.acked:
            writes.append(command("HSET", KEYS.counters, "acked", state.acked))
        self.store.call(writes, self._link)
        for place, life in enumerate(state.lives):
            link: Link = self._links[place]
            if link.watching:
                self.store.call(Transaction(()), link)
            if life.watching and not life.crashed:
                self.store.call(Watch((*life.watching, f"dirty:{place}")), link)
                if life.dirty:
                    self.store.call(command("SET", f"dirty:{place}", 1), self._link)

    def _snapshot(self, lives: tuple[Life, ...], before: State, losses: int) -> State:
        lists, leases, consumers, acked = [], [], (), 0
        for key, value in sorted(self.store.call(command("EVAL", _DUMP, 0), self._link)):
            name = key.decode()
            if ":lease:" in name:
                leases.append((name.partition(":lease:")[2], int(value) > NOW))
            elif name == KEYS.consumers:
                consumers = tuple(sorted(one.decode() for one in value))
            elif name == KEYS.counters:
                acked = int(value or 0)
            else:
                lists.append((name, tuple(value)))
        return State(tuple(lists), tuple(leases), consumers, acked, lives, before.crashes, losses, before.expiries)

    @staticmethod
    def _with_life(state: State, place: int, life: Life, **changes: Any) -> State:
        lives = (*state.lives[:place], life, *state.lives[place + 1 :])
        return dataclasses.replace(state, lives=lives, **changes)

    def _expired(self, state: State, consumer: str) -> State:
        """Time passes until this lease is over. Writing the deadline is what a clock would have done: no key is touched
        for a real WATCH, so the watchers stay clean."""
        leases = tuple((one, alive and one != consumer) for one, alive in state.leases)
        return dataclasses.replace(state, leases=leases, expiries=state.expiries - 1)

    def restore(self, state: State) -> None:
        """Put a state back, for a look at how it goes on."""
        self._restore(dataclasses.replace(state, lives=tuple(Life() for _ in state.lives)))

    def close(self) -> None:
        for link in (self._link, *self._links):
            link.close()
        self.store.close()
        self.redis.close()


def _frames(steps: Any) -> tuple[Any, ...]:
    """The line and the variables of a generator and of those it is waiting for: what it will do depends on no more."""
    found: list[Any] = []
    while steps is not None and hasattr(steps, "gi_frame"):
        frame = steps.gi_frame
        variables = tuple((name, _stable(value)) for name, value in sorted(frame.f_locals.items()) if name != "events")
        found.append((frame.f_code.co_name, frame.f_lasti, variables))
        steps = steps.gi_yieldfrom
    return tuple(found)


def _stable(value: Any) -> Any:
    """A value that is equal for equal contents, whatever objects hold them."""
    match value:
        case bool() | None | str() | bytes():
            return value
        case int() | float():
            return NOW if value > 10**12 and value != ALIVE else value
        case list() | tuple() | set() | frozenset():
            return tuple(map(_stable, value))
        case dict():
            return tuple((_stable(name), _stable(one)) for name, one in value.items())
        case Message():
            return (value.element, value.lost)
        case Holdings():
            return _stable({name: one for name, one in vars(value).items() if name != "keys"})
        case Op():
            return _stable(value.command)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return tuple(_stable(getattr(value, field.name)) for field in dataclasses.fields(value))
        case _:
            return type(value).__name__


def _label(request: Request) -> str:
    match request:
        case Watch():
            return "watch"
        case Transaction(ops=()):
            return "unwatch"
        case Transaction():
            return "exec"
        case _:
            first = request if not isinstance(request, (list, tuple)) else request[0]
            return first.script.name if first.script else str(first.command[0])


def _frozen(value: Any) -> Any:
    """The reply as a value that can be compared and kept; the time in it is always the same instant."""
    if isinstance(value, Claimed):
        return ("claimed", value.status, tuple(value.elements), value.codes)
    if isinstance(value, (list, tuple)):
        return ("list", *map(_frozen, value))
    if isinstance(value, int) and not isinstance(value, bool) and value > 10**12:
        return NOW
    return value


def _thawed(value: Any) -> Any:
    match value:
        case ("claimed", status, items, codes):
            return Claimed(status, NOW, list(items), codes)
        case ("list", *items):
            return [_thawed(one) for one in items]
        case _:
            return value


def show(state: State) -> str:
    return ", ".join(f"{key.rpartition('}:')[2]}=[{' '.join(map(name_of, items))}]" for key, items in state.lists)
