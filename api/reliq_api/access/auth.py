"""Authentication and authorization of requests. Only with `--no-auth`, and while no key has ever existed, the service's
own machine needs no key.
"""

import asyncio
import base64
import contextlib
import ipaddress
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from fastapi import Request

from reliq import aio, ops
from reliq.errors import RedisUnavailable, ReliqError
from reliq.model.keys import check_name
from reliq.ops import Steps
from reliq.protocol.clock import Clock
from reliq_api.access.cached import KEYS_EVERY, KEYS_KEPT, Cached
from reliq_api.access.keyring import ApiKey, Scope, judged, read_all
from reliq_api.access.rate_limit import Allowance
from reliq_api.background import Background
from reliq_api.http.problems import Problem
from reliq_api.http.requests import check_headers, fields

log = logging.getLogger("reliq.api")

T = TypeVar("T")

_KEYS_TRIED = 0.5  #: seconds for which reading the keys from a cluster is retried while the node that has them is away

NO_KEY = (
    "there is no API key: create one with `reliq key create NAME --scope SCOPE --queue PATTERN`, or start the service "
    "with --no-auth (only for development, and only on a Redis that never had a key)"
)

#: Headers in which other services take credentials. Here they are ignored, and refused beside another credential.
_CREDENTIAL_HEADERS = ("x-api-key", "x-auth-token", "proxy-authorization")
_CREDENTIAL_PARAMETERS = frozenset(("access_token", "api_key", "apikey", "api-key", "token"))

#: Headers that proxies add. A request with one of them may have come from another machine.
PROXY_HEADERS = frozenset(("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"))


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of the sender of a request."""

    id: str = ""  #: of the key; empty = no key is needed
    key: ApiKey | None = None

    def may(self, scope: Scope, queue: str) -> bool:
        return self.covers(queue) and (self.key is None or self.key.allows(scope))

    def covers(self, queue: str) -> bool:
        """Whether the sender has a right of any scope to this queue; without one, the queue does not exist for it."""
        return self.key is None or self.key.covers(queue)

    def may_see(self, queue: str) -> bool:
        return self.may("metrics", queue)

    def may_operate(self, queue: str) -> bool:
        return self.may("operate", queue)

    def may_bind(self, queue: str) -> bool:
        return self.may("topics", queue)

    def may_send(self, queue: str) -> bool:
        """Whether the sender may operate the queue and choose what enters it, as on the dashboard."""
        return self.may("operate", queue) and self.may("enqueue", queue)

    def check_reach(self, queues: Sequence[str]) -> None:
        """Raise Problem unless the sender may enqueue in each of these queues. The problem does not name the queue."""
        if not all(self.may("enqueue", queue) for queue in queues):
            raise Problem(
                "forbidden", "the message would reach a queue to which the key has no right; nothing was enqueued"
            )

    def check_dead_to(self, changes: Mapping[str, Any]) -> None:
        """Raise Problem if changes of a policy would send dead letters to a queue to which the sender has no right."""
        queue = changes.get("dead_to")
        if queue is not None and not self.covers(queue):
            raise Problem("forbidden", f"dead_to: the key has no right to a queue {queue!r}; nothing was changed")

    @property
    def covers_all(self) -> bool:
        """Whether the rights cover all queues, including future ones."""
        return self.key is None or "*" in self.key.queues

    def check_all(self, what: str) -> None:
        """Raise Problem unless the rights cover all queues, as `what` do."""
        if not self.covers_all:
            raise Problem("forbidden", f"{what} cover all queues: this needs a key for *")


class Guard:
    """Checks requests against the keys in Redis."""

    def __init__(self, reliq: aio.Reliq, background: Background, no_auth: bool) -> None:
        """`no_auth`: serve this machine without a key until the first key exists."""
        timeout = _KEYS_TRIED if reliq.store.sharded else None
        self._keys = Cached(
            "API keys",
            lambda: reliq.store.run(self._read(), timeout=timeout),
            KEYS_EVERY,
            background,
            kept=lambda keys: KEYS_KEPT if keys and not self._open else 0.0,
        )
        self._clock = Clock()
        self._store = reliq.store
        self._allowances: dict[str, Allowance] = {}
        self._open = no_auth

    def _read(self) -> Steps[dict[str, ApiKey]]:
        """Read the keys. Once there is or was one, this process never serves without a key again."""
        keys = yield from read_all(self._clock)
        if self._open and (keys or (yield ops.key_existed())):
            self._open = False
            log.warning("--no-auth has no effect: this Redis has, or had, an API key, so requests need one")
        return keys

    async def _known(self) -> dict[str, ApiKey]:
        """Return the keys; raises Problem, which names the node, if the node that has them is away."""
        try:
            return await self._keys.get()
        except RedisUnavailable as error:
            if not error.node:
                raise
            raise Problem(
                "redis_unavailable",
                f"Node {error.node} of the cluster, which has the API keys, cannot be reached; nothing was changed.",
                node=error.node,
            ) from None

    async def admit(self, request: Request, scopes: Sequence[Scope], limited: bool = True) -> Access:
        """Return the rights of the sender; raises Problem if they do not allow this call, on the queue in the path.

        `scopes`: all are needed. `limited`: whether the call counts for the rate of the key.
        """
        queue = request.path_params.get("queue")
        if queue is not None:
            check_name(queue)
        access = await self.identify(request, limited)
        key = access.key
        if key is None:
            return access
        if queue is not None and not key.covers(queue):
            raise Problem("queue_not_found", f"there is no queue {queue!r}, or not for this key")
        for scope in scopes:
            if not key.allows(scope):
                raise Problem("forbidden", f"the key {access.id} has no scope {scope!r}")
        return access

    async def supervise(self, access: Access, scope: Scope, queue: str, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of long work; stops it and raises Problem when the sender's rights end meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([task], timeout=KEYS_EVERY))[0]:
                with contextlib.suppress(ReliqError):  # Redis cannot be asked: then the work cannot go on either
                    await self.confirm(access, scope, queue)
            return task.result()
        finally:
            if task.cancel():
                await asyncio.wait([task])

    async def confirm(self, access: Access, scope: Scope, queue: str) -> None:
        """Raise Problem if the key of a long request was revoked, changed or expired meanwhile."""
        if access.key is None:
            await self._keys.get()
            if not self._open:
                raise Problem("unauthorized", "there is an API key now, so a request needs one")
            return
        key = (await self._keys.get()).get(access.id)
        if key is None or key.sha256 != access.key.sha256 or key.expired(self._clock.now()):
            raise Problem("unauthorized", f"the key {access.id} is no longer valid")
        if not key.covers(queue) or not key.allows(scope):
            raise Problem("forbidden", f"the key {access.id} no longer allows this")

    async def identify(self, request: Request, limited: bool = True) -> Access:
        """Return the sender's rights; raises Problem for a missing or wrong key, and for requests of other sites."""
        check_headers(request.scope)
        _check_one_credential(request)
        _check_site(request)
        keys = await self._known()
        text = _credentials(request)
        if self._open and text is None:
            _check_loopback(request)
            return Access()
        found = judged(keys, text, self._clock.now()) if text is not None else None
        if found is None:
            raise _unauthorized(request, bool(keys))
        identity, key = found
        if key.rate and limited:
            if len(self._allowances) > len(keys):  # some belong to revoked keys
                self._allowances = {one: kept for one, kept in self._allowances.items() if one in keys}
            await self._allowances.setdefault(identity, Allowance()).take(self._store, identity, key.rate)
        return Access(identity, key)


_HOW = "give an API key: Authorization: Bearer ID.SECRET"


def _unauthorized(request: Request, keys_exist: bool) -> Problem:
    # Browsers ask their user for Basic credentials, which is of no use while there is no key.
    basic = keys_exist and not request.scope["path"].startswith("/v1/")
    how = "log in: the user is the id of a key, the password its secret" if basic else _HOW
    problem = Problem("unauthorized", how if keys_exist else NO_KEY)
    problem.headers = {"WWW-Authenticate": f'{"Basic" if basic else "Bearer"} realm="reliq"'}
    return problem


def _check_one_credential(request: Request) -> None:
    """Refuse two credentials: a proxy in front of the service may have checked the other one."""
    header = fields(request.scope).get("authorization")
    others = [name for name in _CREDENTIAL_HEADERS if name in fields(request.scope)]
    others += [name for name, _ in request.query_params.multi_items() if name.lower() in _CREDENTIAL_PARAMETERS]
    if header is not None and "," in header:
        raise Problem("invalid_header", "Authorization holds more than one credential: send one")
    if len(others) + (header is not None) > 1:
        raise Problem("invalid_header", "the request has more than one credential: send only Authorization")


def _credentials(request: Request) -> str | None:
    header = fields(request.scope).get("authorization")
    if header is None:
        return None
    scheme, _, rest = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":  # from browsers: the key's id as user, its secret as password
            try:
                return base64.b64decode(rest, validate=True).decode().replace(":", ".", 1)
            except ValueError:  # binascii.Error is one
                return ""
        case _:
            return ""


def _check_site(request: Request) -> None:
    """Refuse requests started by another web site: browsers add credentials, and reach loopback, by themselves."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return
    site, origin = fields(request.scope).get("sec-fetch-site"), fields(request.scope).get("origin")
    if site is not None:
        allowed = site in ("same-origin", "none")
    else:
        allowed = origin is None or origin.partition("://")[2] == fields(request.scope).get("host")
    if not allowed:
        raise Problem("cross_site", "this request was started by another web site; nothing was done")


def _check_loopback(request: Request) -> None:
    """With --no-auth, accept only requests from and to this machine by name; else DNS rebinding could reach it."""
    client = request.client.host if request.client else ""
    forwarded = not PROXY_HEADERS.isdisjoint(fields(request.scope))
    if forwarded or not is_loopback(client) or not is_loopback(host_name(fields(request.scope))):
        raise Problem(
            "unauthorized",
            "with --no-auth only this machine is served, under the name localhost and without a proxy: "
            "create a key with `reliq key create NAME --scope SCOPE --queue PATTERN`",
        )


def host_name(headers: Mapping[str, str]) -> str:
    """Return the name in the Host header, without the port."""
    text = headers.get("host", "")
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


@lru_cache
def is_loopback(host: str) -> bool:
    """Whether the text is a name or an address of this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
