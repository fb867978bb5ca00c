"""Who sends a request: the holder of an access key who has signed it or, with `--no-auth`, anybody on this machine."""

from collections.abc import Mapping

from starlette.types import Scope

from reliq import aio
from reliq.protocol.clock import Clock
from reliq_api.access.auth import PROXY_HEADERS, host_name, is_loopback
from reliq_api.access.cached import KEYS_EVERY, KEYS_KEPT, Cached
from reliq_api.background import Background
from reliq_sqs import signing
from reliq_sqs.access import ANYBODY, Sender
from reliq_sqs.errors import SqsError
from reliq_sqs.keys import Opened, Vault, open_all, read_all
from reliq_sqs.names import known_region, region_of_host

_UNKNOWN = "The security token included in the request is invalid."


class Guard:
    """Compares requests with the access keys in Redis."""

    def __init__(self, app: aio.Reliq, background: Background, vault: Vault | None, no_auth: bool, region: str) -> None:
        self._app = app
        self._clock = Clock()
        self._vault = vault
        self._no_auth = no_auth
        self._region = region
        self._keys = Cached(
            "access keys", self._read, KEYS_EVERY, background, kept=lambda keys: KEYS_KEPT if keys else 0.0
        )

    async def _read(self) -> Mapping[str, Opened]:
        if self._vault is None:
            return {}
        return open_all(self._vault, await self._app.store.run(read_all(self._clock)))

    async def admit(self, scope: Scope, headers: Mapping[str, str], body: bytes) -> tuple[Sender, str]:
        """Return the sender and the region of a request; raises SqsError."""
        query = scope["query_string"].decode("latin-1")
        if self._no_auth:
            host = host_name(headers)
            _check_own_machine(scope, headers, host)
            return ANYBODY, self._known(signing.region_of(headers, query) or region_of_host(host))
        signature = signing.read(headers, query)
        if signature is None:
            raise SqsError("MissingAuthenticationTokenException", "Missing Authentication Token")
        opened = (await self._keys.get()).get(signature.key)
        now = self._clock.now()
        if opened is None or opened.key.expired(now):
            raise SqsError("InvalidClientTokenIdException", _UNKNOWN)
        path = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        request = signing.Signed(scope["method"], path, query, headers, body)
        signing.verify(signature, opened.secret, request, now / 1000)
        return opened.sender, self._known(signature.region)

    def _known(self, region: str) -> str:
        """Return a region that has the form of one; else that of the endpoint."""
        return region if known_region(region) else self._region


def _check_own_machine(scope: Scope, headers: Mapping[str, str], host: str) -> None:
    """Raise SqsError for other machines, and for web pages, which reach loopback through a browser.

    A browser names itself with `Origin` or `Sec-Fetch-Site`, but not in a GET under a name of the page's own, which
    then must be one of this machine.
    """
    client = scope["client"][0] if scope.get("client") else ""
    of_page = "origin" in headers or "sec-fetch-site" in headers
    of_page |= scope["method"] == "GET" and not (is_loopback(host) or host.endswith(".localhost"))
    forwarded = not PROXY_HEADERS.isdisjoint(headers)
    if of_page or forwarded or not is_loopback(client):
        raise SqsError(
            "AccessDeniedException",
            "With --no-auth only programs of this machine are served: create an access key with "
            "`reliq sqs key create NAME --scope SCOPE --queue PATTERN`.",
        )
