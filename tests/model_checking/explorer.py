"""Explores every order of steps, crashes and lost replies of a few actors, on a real Redis, and looks for violations.

An actor is a generator of the real steps (the ones that Store.run drives), so the explored protocol is the shipped one.
A generator cannot be copied; it is made anew and sent the replies it had. A state is what Redis holds, where each actor
stands (the lines its frames are at and their variables), and how many faults are left; each is visited once. Before
a step Redis is set to the state it starts from, with the WATCHes of the actors in it. What Redis does depends on these
and on the request, so that it is asked once for states that differ in other things.

Faults, each as often as a budget allows: an actor crashes; a reply is lost; a request is lost; a request that was given
up is carried out late, at any moment before its connection is closed; a lease runs out; Redis is restarted with its
state of one step ago, of which only the new connection tells.
"""

import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import redis

from reliq.errors import OutcomeUnknown
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Claimed, Op, Request, Sleep, Transaction, Watch, command
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.held_messages import HeldMessages, UnderWay
from reliq.runtime.moment import Moment
from reliq.transport.connection import Connection
from reliq.transport.store import Store
from tests.support.state import KEYS, element, name_of

ALIVE, OVER, NOW = 10**15, 1, 1_700_000_000_000
LOST_REPLY = "the reply was lost"
LOST_REQUEST = "the request was lost"
LATE_REQUEST = "the request was given up, and is still on its way"
FAULTS = (LOST_REPLY, LOST_REQUEST, LATE_REQUEST)

#: Everything a state is made of, in one round trip.
_DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', 'reliq:{*}:*')) do
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


class Events(list[str]):
    """What an actor did; and what its connection tells it when it is made anew."""

    on_reconnect: Callable[[], object] = staticmethod(lambda: None)


Actor = Callable[[Events], Generator[Request, Any, None]]


class Violation(AssertionError):
    """What must never happen, with the steps that led there."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where an actor has got to: what it asks next (None: it has ended), what it did, and its frames."""

    request: Request | None
    events: tuple[str, ...]
    frames: tuple[Any, ...]
    then: dict[Any, "Standing"] = dataclasses.field(default_factory=dict, compare=False)  #: by what it is told next

    @functools.cached_property
    def hash_of_frames(self) -> int:
        return hash(self.frames)


@dataclasses.dataclass(frozen=True)
class Life:
    """An actor: everything it was told so far, and where that brought it. Equal when it stands at the same place."""

    told: tuple[Any, ...] = dataclasses.field(default=(), compare=False)
    standing: Standing = dataclasses.field(default=Standing(None, (), ()), compare=False)
    frames: tuple[Any, ...] = ()
    crashed: bool = False
    watching: tuple[str, ...] = ()
    dirty: bool = False  #: a key it watches was touched
    cut_off: bool = False  #: its connection has ended, and it has not noticed

    def __hash__(self) -> int:
        place = None if self.crashed else self.standing.hash_of_frames
        return hash((place, self.crashed, self.watching, self.dirty, self.cut_off))

    @property
    def watches(self) -> bool:
        """Whether its connection is there and watches keys."""
        return bool(self.watching) and not self.crashed and not self.cut_off


@dataclasses.dataclass(frozen=True)
class Data:
    """What Redis holds."""

    lists: tuple[tuple[str, tuple[bytes, ...]], ...]
    leases: tuple[tuple[str, bool], ...] = ()  #: by key, whether they last
    consumers: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: by key
    acked: tuple[tuple[str, int], ...] = ()  #: by key of the counters

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property  # asked for with every request of every state
    def _hash(self) -> int:
        return hash((self.lists, self.leases, self.consumers, self.acked))


@dataclasses.dataclass(frozen=True)
class Effect:
    """What a request does: its reply, what Redis holds then, and by actor whether a key that it watches was touched."""

    reply: Any
    data: Data
    dirty: tuple[bool, ...]


@dataclasses.dataclass(frozen=True)
class Late:
    """A request that an actor has given up, and that may still be carried out."""

    place: int
    commands: tuple[Any, ...]
    request: Request = dataclasses.field(compare=False)
    watched: tuple[Any, ...] = ()  #: what it watched, as it was


@dataclasses.dataclass(frozen=True)
class Budget:
    """Faults that may still happen."""

    crashes: int = 0
    losses: int = 0
    expiries: int = 0
    lates: int = 0
    restarts: int = 0

    def less(self, fault: str) -> "Budget":
        return dataclasses.replace(self, **{fault: getattr(self, fault) - 1})


@dataclasses.dataclass(frozen=True)
class State:
    data: Data
    lives: tuple[Life, ...]
    budget: Budget
    queues: tuple[QueueKeys, ...] = (KEYS,)
    late: tuple[Late, ...] = ()
    past: Data | None = None  #: what Redis held one step ago, where it may be restarted
    messages: int = 1  #: in each queue at the start

    @property
    def lists(self) -> tuple[tuple[str, tuple[bytes, ...]], ...]:
        return self.data.lists

    def copies(self, prefix: str = "") -> int:
        return sum(len(items) for key, items in self.data.lists if key.startswith(prefix))

    def acked(self, keys: QueueKeys = KEYS) -> int:
        return dict(self.data.acked).get(keys.counters, 0)


class Explorer:
    """`check(before, after, events...)` raises Violation; `settled(state, self)` judges final states.

    `fenced`: a connection that replaces another has the server close that one first, as named links do. Otherwise
    what was sent there may arrive at any time, but before the consumer compares its list with what it holds (LLEN).
    """

    def __init__(
        self,
        url: str,
        actors: list[Actor],
        check: Callable[[State, State, list[tuple[str, ...]], list[tuple[str, ...]]], None],
        settled: Callable[[State, "Explorer"], None],
        patch_nonce: Callable[[Callable[[], int]], None],
        fenced: bool = True,
    ) -> None:
        self.redis = redis.Redis.from_url(url)
        self.store = Store(url)
        self._actors = actors
        self._check = check
        self._settled = settled
        self._connection = self.store.connection()
        self._connections = [self.store.connection() for _ in actors]
        self._patch_nonce = patch_nonce
        self._fenced = fenced
        self._effects: dict[Any, Effect] = {}
        self.states = 0

    def explore(
        self, queues: Sequence[QueueKeys] = (KEYS,), messages: str = "a", most: int = 1_000_000, **faults: int
    ) -> int:
        """Visit every state reachable with these faults; how many there are. Each queue begins with these messages."""
        begun = [self._replay(place, ()) for place in range(len(self._actors))]
        start = State(
            data=Data(tuple((keys.messages, tuple(map(element, messages))) for keys in queues)),
            messages=len(messages),
            lives=tuple(Life((), one, one.frames) for one in begun),
            budget=Budget(**faults),
            queues=tuple(queues),
        )
        seen = {start}
        stack: list[tuple[State, tuple[str, ...]]] = [(start, ())]
        while stack:
            state, path = stack.pop()
            moved, events = False, self.events(state)
            for label, after in self._next(state):
                moved = moved or not label.startswith(("crash", "expire", "restart"))
                trail = (*path, label)
                try:
                    self._check(state, after, events, self.events(after))
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
        budget = state.budget
        for place, life in enumerate(state.lives):
            if life.crashed:
                continue
            request = life.standing.request
            if request is None or (_label(request) == "LLEN" and any(late.place == place for late in state.late)):
                continue
            name = f"{place}:{_label(request)}"
            if life.cut_off and life.watching:  # the store says so: no step behind a WATCH goes on without it
                yield f"{name} cut off", self._step(state, place, request, LOST_REQUEST)
                continue
            yield name, self._step(state, place, request, None)
            if budget.losses:
                yield f"{name} reply lost", self._step(state, place, request, LOST_REPLY, "losses")
                yield f"{name} request lost", self._step(state, place, request, LOST_REQUEST, "losses")
            if budget.lates and not isinstance(request, (Watch, Sleep)):
                yield f"{name} request late", self._step(state, place, request, LATE_REQUEST, "lates")
            if budget.crashes:
                dead = Life(life.told, life.standing, ("dead",), crashed=True)
                yield f"crash {place}", self._with_life(state, place, dead, budget=budget.less("crashes"))
        for late in state.late:
            yield f"{late.place}:late {_label(late.request)}", self._arrive(state, late)
        if budget.expiries:
            for key, alive in state.data.leases:
                if alive:
                    yield f"expire {key}", self._expired(state, key)
        if budget.restarts and state.past is not None and state.past != state.data:
            yield "restart", self._restarted(state)

    # --- actors ---

    def _replay(self, place: int, told: tuple[Any, ...]) -> Standing:
        events = Events()
        drawn = itertools.count()
        self._patch_nonce(lambda: 1000 * (place + 1) + next(drawn))
        steps = self._actors[place](events)
        try:
            request = next(steps)
            for reconnected, answer in told:
                if reconnected:
                    events.on_reconnect()
                if answer in FAULTS:
                    request = steps.throw(OutcomeUnknown(answer))
                else:
                    request = steps.send(_thawed(answer))
        except StopIteration:
            return Standing(None, tuple(events), ("ended", *events))
        return Standing(request, tuple(events), (next(drawn), *events, *_frames(steps)))

    def _told(self, place: int, life: Life, one: tuple[bool, Any], **fields: Any) -> Life:
        """The actor after it was told one thing more: made anew and told all again, if that was not yet done."""
        told = (*life.told, one)
        standing = life.standing.then.get(one)
        if standing is None:
            standing = life.standing.then[one] = self._replay(place, told)
        return Life(told, standing, standing.frames, **fields)

    def events(self, state: State) -> list[tuple[str, ...]]:
        """What each actor has done by now."""
        return [life.standing.events for life in state.lives]

    # --- Redis ---

    def _step(self, state: State, place: int, request: Request, fault: str | None, spent: str = "") -> State:
        life = state.lives[place]
        effect = Effect(fault, state.data, tuple(one.dirty for one in state.lives))  # of a request that does not arrive
        if fault in (None, LOST_REPLY):
            effect = self._effect(state, request, place)
        answer = effect.reply if fault is None else fault
        watching = self._watched_after(life, request) if fault is None else ()  # else the connection is gone
        lives = self._with_dirt(state, effect)
        lives[place] = self._told(
            place, life, (life.cut_off, answer), watching=watching, dirty=bool(watching) and effect.dirty[place]
        )
        late = tuple(one for one in state.late if not (self._fenced and one.place == place))
        if fault == LATE_REQUEST:
            watched = tuple(self._value(state.data, key) for key in life.watching)
            late += (Late(place, _commands(request), request, watched),)
        return self._after(state, effect.data, lives, late, spent)

    @staticmethod
    def _watched_after(life: Life, request: Request) -> tuple[str, ...]:
        if isinstance(request, Watch):
            return request.keys
        return () if isinstance(request, Transaction) else life.watching

    def _effect(self, state: State, request: Request, place: int | None = None) -> Effect:
        """Carry out a request on the connection of an actor, or on another one."""
        watches = tuple((life.watching, life.dirty) if life.watches else None for life in state.lives)
        case = (state.data, watches, place, _identity(request))
        known = self._effects.get(case)
        if known is None:
            self._restore(state)
            reply = self.store.call(request, self._connection if place is None else self._connections[place])
            dirty = []
            for other, life in enumerate(state.lives):
                asks = self._watched_after(life, request) if other == place else life.watches and not life.dirty
                dirty.append(self._is_dirty(other) if asks else life.dirty)
            known = self._effects[case] = Effect(_frozen(reply), self._held(), tuple(dirty))
        return known

    def _arrive(self, state: State, late: Late) -> State:
        """Carry out an abandoned request, without a reply; a transaction only if its watched keys are unchanged."""
        left = tuple(one for one in state.late if one is not late)
        watching = state.lives[late.place].watching if late.watched else ()
        if late.watched and late.watched != tuple(self._value(state.data, key) for key in watching):
            return self._after(state, state.data, list(state.lives), left)
        effect = self._effect(state, late.request)
        return self._after(state, effect.data, self._with_dirt(state, effect), left)

    def _restarted(self, state: State) -> State:
        """Redis has lost what came last; connections are made anew, and only those who are told know of it."""
        assert state.past is not None
        lives = tuple(dataclasses.replace(life, cut_off=not life.crashed, dirty=False) for life in state.lives)
        return dataclasses.replace(
            state, data=state.past, lives=lives, late=(), past=None, budget=state.budget.less("restarts")
        )

    @staticmethod
    def _value(data: Data, key: str) -> Any:
        return (dict(data.lists).get(key), dict(data.leases).get(key))

    @staticmethod
    def _with_dirt(state: State, effect: Effect) -> list[Life]:
        """The lives, with a note of those who watch a key that was just touched."""
        return [
            life if life.dirty == dirty else dataclasses.replace(life, dirty=dirty)
            for life, dirty in zip(state.lives, effect.dirty, strict=True)
        ]

    def _is_dirty(self, place: int) -> bool:
        """Ask the server: would this actor's transaction be refused now?"""
        connection = self._connections[place]
        return self.store.call(Transaction((command("PING"),)), connection) is None

    def _restore(self, state: State) -> None:
        data = state.data
        writes = [command("FLUSHDB")]
        writes += [command("RPUSH", key, *items) for key, items in data.lists]
        writes += [command("SET", key, ALIVE if alive else OVER) for key, alive in data.leases]
        writes += [command("SADD", key, *members) for key, members in data.consumers]
        writes += [command("HSET", key, "acked", acked) for key, acked in data.acked]
        self.store.call(writes, self._connection)
        for place, life in enumerate(state.lives):
            connection: Connection = self._connections[place]
            if connection.watching:
                self.store.call(Transaction(()), connection)
            if life.watches:
                self.store.call(Watch((*life.watching, f"dirty:{place}")), connection)
                if life.dirty:
                    self.store.call(command("SET", f"dirty:{place}", 1), self._connection)

    def _held(self) -> Data:
        """Read what Redis holds."""
        lists, leases, consumers, acked = [], [], [], []
        for key, value in sorted(self.store.call(command("EVAL", _DUMP, 0), self._connection)):
            name = key.decode()
            if ":lease:" in name:
                leases.append((name, int(value) > NOW))
            elif name.endswith(":consumers"):
                consumers.append((name, tuple(sorted(one.decode() for one in value))))
            elif name.endswith(":counters"):
                acked.append((name, int(value or 0)))
            else:
                lists.append((name, tuple(value)))
        return Data(tuple(lists), tuple(leases), tuple(consumers), tuple(acked))

    @staticmethod
    def _after(before: State, data: Data, lives: list[Life], late: tuple[Late, ...], spent: str = "") -> State:
        budget = before.budget.less(spent) if spent else before.budget
        past = before.data if budget.restarts else None
        return State(data, tuple(lives), budget, before.queues, late, past, before.messages)

    @staticmethod
    def _with_life(state: State, place: int, life: Life, **changes: Any) -> State:
        lives = (*state.lives[:place], life, *state.lives[place + 1 :])
        return dataclasses.replace(state, lives=lives, **changes)

    def _expired(self, state: State, key: str) -> State:
        """Time passes until this lease is over. Writing the deadline is what a clock would have done: no key is touched
        for a real WATCH, so the watchers stay clean."""
        leases = tuple((one, alive and one != key) for one, alive in state.data.leases)
        data = dataclasses.replace(state.data, leases=leases)
        return dataclasses.replace(state, data=data, budget=state.budget.less("expiries"))

    def restore(self, state: State) -> None:
        """Put a state back, for a look at how it goes on."""
        self._restore(dataclasses.replace(state, lives=tuple(Life() for _ in state.lives)))

    def close(self) -> None:
        for connection in (self._connection, *self._connections):
            connection.close()
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
        case Moment():
            return None
        case enum.Enum():
            return value.name
        case ConsumerSteps() | HeldMessages():
            return _stable({name: one for name, one in vars(value).items() if name not in _CLOCKED})
        case UnderWay():
            return value.calls
        case Op():
            return _stable(value.command)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return tuple(_stable(getattr(value, field.name)) for field in dataclasses.fields(value))
        case _:
            return type(value).__name__


#: Of a consumer's steps: its place, and what only tells the time.
_CLOCKED = ("keys", "clock_offset", "_verified_at")


def _identity(request: Request) -> tuple[Any, ...]:
    """A value that is equal for equal requests: the same commands, the replies read in the same way."""
    match request:
        case Op():
            return (request.command, request.read)
        case Transaction():
            return ("exec", *map(_identity, request.ops))
        case Watch():
            return ("watch", request.keys, *map(_identity, request.reads))
        case Sleep():
            raise TypeError(f"{request} is no request to Redis")
        case _:
            return tuple(map(_identity, request))


def _commands(request: Request) -> tuple[Any, ...]:
    match request:
        case Op():
            return (request.command,)
        case Transaction():
            return tuple(op.command for op in request.ops)
        case Watch() | Sleep():
            raise TypeError(f"{request} is no request with commands")
        case _:
            return tuple(op.command for op in request)


def _label(request: Request) -> str:
    match request:
        case Watch():
            return "watch"
        case Transaction(ops=()):
            return "unwatch"
        case Transaction():
            return "exec"
        case Sleep():
            raise TypeError(f"{request} is no request to Redis")
        case _:
            first = request if isinstance(request, Op) else request[0]
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
