"""Authentication and authorization of requests. Without any key, only the service's own machine is served."""

import base64
import binascii
import ipaddress
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fastapi import Request

from reliq import aio
from reliq.model.keys import check_name
from reliq_api.access.cached import Cached
from reliq_api.access.keyring import ApiKey, judged, read_all
from reliq_api.access.rate_limit import Allowance
from reliq_api.background import Background
from reliq_api.http.problems import Problem
from reliq_api.http.requests import check_headers, fields

Scope = Literal["enqueue", "consume", "operate", "metrics"]

_KEYS_EVERY = 1.0  #: seconds; a revoked key is refused after at most twice this time
_UNLIMITED: frozenset[str] = frozenset({"settle", "extend"})  #: calls that reduce the load are never limited


#: Headers in which other services take credentials. Here they are ignored, and refused beside another credential.
_CREDENTIAL_HEADERS = ("x-api-key", "x-auth-token", "proxy-authorization")
_CREDENTIAL_PARAMETERS = frozenset(("access_token", "api_key", "apikey", "api-key", "token"))


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of the sender of a request."""

    id: str = ""  #: of the key; empty = no key is needed
    key: ApiKey | None = None

    def may(self, scope: Scope, queue: str) -> bool:
        return self.key is None or (self.key.covers(queue) and self.key.allows(scope))

    def may_see(self, queue: str) -> bool:
        return self.may("metrics", queue)

    def may_operate(self, queue: str) -> bool:
        return self.may("operate", queue)

    @property
    def covers_all(self) -> bool:
        """Whether the rights cover all queues, including future ones."""
        return self.key is None or "*" in self.key.queues


class Guard:
    """Checks requests against the keys in Redis."""

    def __init__(self, reliq: aio.Reliq, background: Background) -> None:
        self._keys = Cached("API keys", lambda: reliq.store.run(read_all()), _KEYS_EVERY, background)
        self._store = reliq.store
        self._allowances: dict[str, Allowance] = {}

    async def admit(self, request: Request, scope: Scope) -> Access:
        """Return the rights of the sender; raises Problem if they do not allow this call, on the queue in the path."""
        queue = request.path_params.get("queue")
        if queue is not None:
            check_name(queue)
        access = await self.identify(request)
        key = access.key
        if key is None:
            return access
        if queue is not None and not key.covers(queue):
            raise Problem("queue_not_found", f"there is no queue {queue!r}, or not for this key")
        if not key.allows(scope):
            raise Problem("forbidden", f"the key {access.id} has no scope {scope!r}")
        return access

    async def confirm(self, access: Access, scope: Scope, queue: str) -> None:
        """Raise Problem if the key of a long request was revoked, changed or expired meanwhile."""
        if access.key is None:
            if await self._keys.get():
                raise Problem("unauthorized", "there is an API key now, so a request needs one")
            return
        key = (await self._keys.get()).get(access.id)
        if key is None or key.sha256 != access.key.sha256 or key.expired(time.time_ns() // 1_000_000):
            raise Problem("unauthorized", f"the key {access.id} is no longer valid")
        if not key.covers(queue) or not key.allows(scope):
            raise Problem("forbidden", f"the key {access.id} no longer allows this")

    async def identify(self, request: Request) -> Access:
        """Return the sender's rights; raises Problem for a missing or wrong key, and for requests of other sites."""
        check_headers(request.scope)
        _check_one_credential(request)
        _check_site(request)
        keys = await self._keys.get()
        text = _credentials(request)
        if not keys and text is None:
            _check_loopback(request)
            return Access()
        found = judged(keys, text) if text is not None else None
        if found is None:
            # Browsers ask their user for Basic credentials.
            challenge = "Bearer" if request.scope["path"].startswith("/v1/") else "Basic"
            problem = Problem("unauthorized", "give an API key: Authorization: Bearer ID.SECRET")
            problem.headers = {"WWW-Authenticate": f'{challenge} realm="reliq"'}
            raise problem
        identity, key = found
        if key.rate and request.scope["path"].rpartition("/")[2] not in _UNLIMITED:
            if len(self._allowances) > len(keys):  # some belong to revoked keys
                self._allowances = {one: kept for one, kept in self._allowances.items() if one in keys}
            await self._allowances.setdefault(identity, Allowance()).take(self._store, identity, key.rate)
        return Access(identity, key)


def _check_one_credential(request: Request) -> None:
    """Refuse two credentials: a proxy in front of the service may have checked the other one."""
    header = fields(request).get("authorization")
    others = [name for name in _CREDENTIAL_HEADERS if name in fields(request)]
    others += [name for name, _ in request.query_params.multi_items() if name.lower() in _CREDENTIAL_PARAMETERS]
    if header is not None and "," in header:
        raise Problem("invalid_header", "Authorization holds more than one credential: send one")
    if len(others) + (header is not None) > 1:
        raise Problem("invalid_header", "the request has more than one credential: send only Authorization")


def _credentials(request: Request) -> str | None:
    header = fields(request).get("authorization")
    if header is None:
        return None
    scheme, _, rest = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":  # from browsers: the key's id as user, its secret as password
            try:
                return base64.b64decode(rest, validate=True).decode().replace(":", ".", 1)
            except (binascii.Error, ValueError):
                return ""
        case _:
            return ""


def _check_site(request: Request) -> None:
    """Refuse requests started by another web site: browsers add credentials, and reach loopback, by themselves."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return
    site, origin = fields(request).get("sec-fetch-site"), fields(request).get("origin")
    if site is not None:
        allowed = site in ("same-origin", "none")
    else:
        allowed = origin is None or origin.partition("://")[2] == fields(request).get("host")
    if not allowed:
        raise Problem("cross_site", "this request was started by another web site; nothing was done")


def _check_loopback(request: Request) -> None:
    """Without keys, accept only requests from and to this machine by name; else DNS rebinding could reach it."""
    client = request.client.host if request.client else ""
    forwarded = "forwarded" in fields(request) or "x-forwarded-for" in fields(request)
    if forwarded or not is_loopback(client) or not is_loopback(_host(request)):
        raise Problem(
            "unauthorized",
            "there is no API key yet, so only this machine is served, under the name localhost: "
            "make one with `reliq keys create`",
        )


def _host(request: Request) -> str:
    """Return the name in the Host header, without the port."""
    text = fields(request).get("host", "")
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
