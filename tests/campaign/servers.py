"""The servers of a campaign: a Redis that can be killed and rewound, behind proxies where connections are the fault."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from reliq.embedded import EmbeddedRedis
from reliq.errors import ReliqError
from reliq.observability.doctor import examine
from reliq.ops import command
from reliq.transport.store import Store
from tests.campaign.faulty_proxy import FaultyProxy
from tests.campaign.tasks import QUEUE
from tests.support.cluster import Cluster
from tests.support.fleet import Fleet

_READ = {
    b"list": ("LRANGE", (0, -1)), b"zset": ("ZRANGE", (0, -1)), b"set": ("SMEMBERS", ()), b"hash": ("HGETALL", ()),
}  # fmt: skip


class Server:
    """One Redis of the campaign's own."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        self._settings = settings
        self._folder = folder
        self.redis = EmbeddedRedis(folder / "redis", settings)

    def __enter__(self) -> Self:
        self.redis.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.redis.stop()

    @property
    def url(self) -> str:
        return self.redis.url

    def url_for(self, process: str) -> str:
        """Return the URL by which this process reaches Redis."""
        return self.url

    def ask(self, *parts: str | int) -> Any:
        """Run a command of an operator."""
        store = Store(self.redis.url, allow_eviction=True)
        try:
            return store.call(command(*parts))
        finally:
            store.close()

    def save(self) -> Path:
        """Copy the files as they are at this moment; whatever was answered is in them."""
        target = self._folder / "saved"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.redis.folder, target)
        return target

    def put_back(self, saved: Path) -> None:
        """Replace the files of the stopped server by a copy."""
        shutil.rmtree(self.redis.folder)
        shutil.copytree(saved, self.redis.folder)

    @property
    def direct_url(self) -> str:
        """The URL of the server itself."""
        return self.redis.url

    def predicted(self) -> str:
        """Return what `reliq doctor` says that this Redis may lose."""
        store = Store(self.direct_url, allow_eviction=True)
        try:
            findings = store.run(examine()).findings
        finally:
            store.close()
        return " ".join(one.meaning for one in findings if one.subject in ("persistence", "replicas"))

    def keys(self, pattern: str) -> list[bytes]:
        """Return all keys that match."""
        store = Store(self.direct_url, allow_eviction=True)
        try:
            return list(store.call(command("KEYS", pattern)))
        finally:
            store.close()

    def dump(self, target: Path) -> None:
        """Write every key of the campaign's queue: members of lists, sets and sorted sets, fields of hashes, in hex."""
        store = Store(self.direct_url, allow_eviction=True)
        found: dict[str, Any] = {}
        for key in self.keys(f"reliq:{{{QUEUE}}}:*") + self.keys(f"reliq:{{{QUEUE}@partition.*}}:*"):
            kind = store.call(command("TYPE", key))
            name, rest = _READ.get(bytes(kind) if isinstance(kind, bytes) else str(kind).encode(), ("", ()))
            if name:
                value = store.call(command(name, key, *rest))
                found[key.decode()] = _pairs(value) if name == "HGETALL" else [one.hex() for one in value]
        store.close()
        target.write_text(json.dumps(found))


class ProxiedServer(Server):
    """The same, behind a proxy for each process, which can break that process's connections."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        super().__init__(folder, settings)
        self.proxies: dict[str, FaultyProxy] = {}

    def url_for(self, process: str) -> str:
        self.proxies[process] = FaultyProxy(self.redis.port, process)
        return self.proxies[process].url

    def __exit__(self, *error: object) -> None:
        for proxy in self.proxies.values():
            proxy.close()
        super().__exit__(*error)


class SentinelServer(Server):
    """A master, two replicas and three sentinels."""

    gates = False

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        super().__init__(folder, settings)
        self.fleet = Fleet(gates=self.gates)

    def __enter__(self) -> Self:
        self.fleet.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.fleet.__exit__(*error)

    @property
    def url(self) -> str:
        return self.fleet.url

    @property
    def direct_url(self) -> str:
        master = self.fleet.master()
        if master is None:
            raise ReliqError("the sentinels do not agree on a master")
        return master.url


class GatedSentinelServer(SentinelServer):
    """The same, with a gate before each server: its link to the others can be cut."""

    gates = True


class ClusterServer(Server):
    """Three masters with a replica each."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        super().__init__(folder, settings)
        self.cluster = Cluster()

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.cluster.fail_over_after(15)  # sooner only when a master is killed
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.__exit__(*error)

    @property
    def url(self) -> str:
        return self.cluster.url

    @property
    def direct_url(self) -> str:
        return self.url

    def predicted(self) -> str:
        return ""  # doctor looks at one server

    def keys(self, pattern: str) -> list[bytes]:
        return [key for server in self.cluster.masters() for key in self.cluster.keys_of(server, pattern)]


def _pairs(flat: list[bytes]) -> dict[str, str]:
    return {name.hex(): value.hex() for name, value in zip(flat[::2], flat[1::2], strict=True)}
