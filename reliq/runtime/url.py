"""Redis URLs: parsing, references to them, and the text that may be shown of them.

The shown text consists only of the parts recognized as scheme, hosts and path. A URL that is not understood is not
shown at all: the part that looks like its host may be part of a password.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from reliq.errors import InvalidSetting

_FORMS = "use redis://, rediss:// (TLS), unix://, redis+sentinel://host:port/service/db or redis+cluster://host:port,host:port"
_ESCAPES = "write / as %2F, ? as %3F, # as %23, @ as %40, : as %3A and % as %25 in a user name or password"

_URL = re.compile(r"(rediss?|unix|rediss?\+(?:sentinel|cluster))://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_NODE = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[\w.-]*)(?::([0-9]{1,5}))?")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_TLS = {
    "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname",
}  # fmt: skip
_LOGIN = {"username", "password", "sentinel_username", "sentinel_password"}
_OPTIONS = {*_LOGIN, *_TLS, "db", "sentinel_tls"}
_TRUE, _FALSE = ("1", "t", "true", "y", "yes"), ("0", "f", "false", "n", "no")

Node = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed Redis URL, with percent-escapes decoded. Its repr contains no secret."""

    shown: str  #: scheme, hosts and path: the part that errors and pages may show
    scheme: str = field(repr=False)  #: redis, rediss or unix
    kind: str = field(repr=False)  #: "", sentinel or cluster
    nodes: tuple[tuple[str, int | None], ...] = field(repr=False)
    path: str = field(repr=False)  #: without the slashes around it; for unix://, unchanged
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    sentinel_login: dict[str, str] = field(repr=False)  #: username and password of the sentinels themselves
    tls: dict[str, str | bool] = field(repr=False)  #: redis-py's options of the same names
    sentinel_tls: bool = field(repr=False)  #: whether the sentinels speak TLS, too
    database: int = field(repr=False)

    def hosts(self, port: int) -> list[Node]:
        """Return the hosts in the URL; `port` is for those without a port."""
        return [(host or "localhost", port if given is None else given) for host, given in self.nodes]

    @property
    def tried(self) -> str:
        """What may be shown, with host and port also of a URL that has no host."""
        if self.scheme == "unix" or any(host for host, _ in self.nodes):
            return self.shown
        scheme, _, rest = self.shown.partition("://")
        (host, port), *_ = self.hosts(26379 if self.kind == "sentinel" else 6379)
        return f"{scheme}://{host}:{port}{rest[len(rest.partition('/')[0]) :]}"

    @property
    def login(self) -> dict[str, str]:
        """The user name and password for Redis, as far as the URL has them, under redis-py's names."""
        given = {"username": self.username, "password": self.password}
        return {name: value for name, value in given.items() if value}


_MAX_FILE_BYTES = 16 * 1024  #: the largest size of a file that contains a URL
_REFERENCE = re.compile(r"(env|file|conf):(?!//)(.+)", re.DOTALL)


def is_reference(text: str) -> bool:
    """Whether the text is a reference to a Redis URL instead of a URL."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def dereferenced(text: str, conf: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL for a reference `env:NAME`, `file:/path` or, with `conf`, `conf:name`; else the text itself.

    Thus a command line, a manifest or a plan contains the reference and not the secret. Raises InvalidSetting.
    """
    found = _REFERENCE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or (found[1] == "conf" and conf is None):
        return text
    kind, name = found.groups()
    if kind == "file":
        return _content(name)
    url = environment.get(name) if kind == "env" else (conf or {}).get(name)
    if not url:
        what = "environment variable" if kind == "env" else "Spark configuration entry"
        raise InvalidSetting(f"the Redis URL is to come from {text.strip()}: there is no such {what}, or it is empty")
    return url


def _content(path: str) -> str:
    problem = "it is empty"
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode().strip()
        if len(data) > _MAX_FILE_BYTES:
            problem = f"it is larger than {_MAX_FILE_BYTES} bytes"
        elif text:
            return text
    except OSError as error:
        problem = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        problem = "it is not UTF-8"
    raise InvalidSetting(f"the Redis URL is to come from file:{path}: {problem}")


def read_url(text: object) -> RedisUrl:
    """Parse a Redis URL; raises InvalidSetting, which never quotes text that may be a secret."""
    if not isinstance(text, str):
        raise InvalidSetting(f"Redis URL of type {type(text).__name__}: give a text; {_FORMS}")
    found = _URL.fullmatch(text.strip())
    if found is None:
        raise InvalidSetting(f"Redis URL (not shown, it may have a password) with an unknown scheme: {_FORMS}")
    full_scheme, authority, path, query, fragment = found.groups()
    if fragment or "@" in path or "@" in (query or ""):
        raise _unreadable(full_scheme, f"it contains a #, or an @ after its first / or ?: {_ESCAPES}")
    if _BAD_ESCAPE.search(authority + (query or "")):
        raise _unreadable(full_scheme, f"it contains a % that does not begin an escape: {_ESCAPES}")
    if _CONTROL.search(text.strip()):
        raise _unreadable(full_scheme, "it contains a line break or another control character")
    login, _, hosts = authority.rpartition("@")
    return _assembled(full_scheme, login, hosts, path, _options(full_scheme, query))


def _assembled(full_scheme: str, login: str, hosts: str, path: str, options: dict[str, str]) -> RedisUrl:
    scheme, _, kind = full_scheme.partition("+")
    nodes = _nodes(full_scheme, hosts)
    username, _, password = login.partition(":")
    inside = unquote(path) if scheme == "unix" else unquote(path).strip("/")
    return RedisUrl(
        shown=f"{full_scheme}://{hosts}{path}",
        scheme=scheme,
        kind=kind,
        nodes=nodes,
        path=inside,
        username=unquote(username) or options.get("username"),
        password=unquote(password) or options.get("password"),
        sentinel_login={name: options[f"sentinel_{name}"] for name in _LOGIN if f"sentinel_{name}" in options},
        tls=_tls(full_scheme, options),
        sentinel_tls=_sentinel_tls(full_scheme, options),
        database=_database(full_scheme, kind, inside, options),
    )


def _nodes(full_scheme: str, hosts: str) -> tuple[tuple[str, int | None], ...]:
    found = [_NODE.fullmatch(node) for node in hosts.split(",")]
    several = full_scheme.partition("+")[2] != ""
    ports = [int(node[2]) for node in found if node is not None and node[2]]
    if None in found or max(ports, default=0) > 65535 or (len(found) > 1 and not several):
        raise _unreadable(full_scheme, f"a host or a port is not valid, or the password is not escaped: {_ESCAPES}")
    return tuple((node[1].strip("[]"), int(node[2]) if node[2] else None) for node in found if node is not None)


def _options(full_scheme: str, query: str | None) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in (query or "").split("&") if pair]
    options = {name: unquote(value) for name, _, value in pairs}
    if not options.keys() <= _OPTIONS:
        known = f"an option other than {', '.join(sorted(_OPTIONS))}"
        raise _unreadable(full_scheme, f"it contains {known}, or a ? that is not escaped: {_ESCAPES}")
    return options


def _database(full_scheme: str, kind: str, path: str, options: dict[str, str]) -> int:
    """Return the database number: from the path, after a sentinel service, or from `db`."""
    in_path = {"": "" if full_scheme == "unix" else path, "sentinel": path.partition("/")[2], "cluster": path}[kind]
    number = in_path or options.get("db") or "0"
    if not (number.isascii() and number.isdecimal()):
        raise _unreadable(full_scheme, "its database is not a number; write redis://host:6379/0")
    if kind == "sentinel" and not path.partition("/")[0]:
        raise _unreadable(full_scheme, "name the service: redis+sentinel://host:26379,host:26379/mymaster/0")
    return int(number)


def _tls(full_scheme: str, options: dict[str, str]) -> dict[str, str | bool]:
    """Return redis-py's options for TLS."""
    tls: dict[str, str | bool] = {name: value for name, value in options.items() if name in _TLS}
    if tls and full_scheme.startswith("redis") and not full_scheme.startswith("rediss"):
        raise _unreadable(full_scheme, "it has options of TLS, which it does not use: with TLS it begins with rediss")
    if "ssl_keyfile" in tls and "ssl_certfile" not in tls:
        raise _unreadable(full_scheme, "it has the key ssl_keyfile, and no ssl_certfile that names its certificate")
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = options["ssl_check_hostname"].lower() not in _FALSE
    if "ssl_cert_reqs" in tls:
        wanted = tls["ssl_cert_reqs"] = options["ssl_cert_reqs"].lower().removeprefix("cert_")  # the names of `ssl`
        if wanted not in ("none", "optional", "required"):
            raise _unreadable(full_scheme, "its ssl_cert_reqs is neither none nor optional nor required")
    return tls


def _sentinel_tls(full_scheme: str, options: dict[str, str]) -> bool:
    wanted = options.get("sentinel_tls", "no").lower()
    if wanted not in _TRUE + _FALSE:
        raise _unreadable(full_scheme, "its sentinel_tls is neither true nor false")
    if wanted in _TRUE and full_scheme != "rediss+sentinel":
        raise _unreadable(full_scheme, "it has sentinel_tls, which is for rediss+sentinel://")
    return wanted in _TRUE


def _unreadable(full_scheme: str, problem: str) -> InvalidSetting:
    return InvalidSetting(f"Redis URL {full_scheme}://... (not shown, it may have a password): {problem}")


# --- texts that may contain a URL -------------------------------------------------------------------------------

_OF_REDIS = re.compile(r"\b(rediss?|unix)(\+(?:sentinel|cluster))?://(?:[^\s\"']*[^\s\"'.,:;)\]}>])?")
_LOGIN_OF_ANY = re.compile(r"(?<=//)[^\s\"']*@")  # //user:password@, for instance of a database
_IN_QUERY = re.compile(r"(?i)([?&][a-z_]*(?:password|passwd|secret|token)=)[^&\s\"']*")


def redacted(text: str) -> str:
    """Return the text without the passwords of the URLs in it."""
    if "//" not in text:
        return text
    text = _OF_REDIS.sub(_shown, text)
    return _IN_QUERY.sub(r"\1***", _LOGIN_OF_ANY.sub("", text))


def _shown(found: re.Match[str]) -> str:
    try:
        return read_url(found[0]).shown
    except InvalidSetting:
        return f"{found[1]}{found[2] or ''}://..."
