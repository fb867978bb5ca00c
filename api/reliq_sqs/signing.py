"""AWS Signature Version 4: read from a header or from the address, and compared with the request."""

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from posixpath import normpath
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

from reliq_sqs.errors import SqsError

SKEW = 300  #: seconds that the clocks of a client and of the endpoint may differ
_ALGORITHM = "AWS4-HMAC-SHA256"
_LONGEST_LIFE = 7 * 86_400  #: seconds of a presigned request
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_UNSIGNED = "UNSIGNED-PAYLOAD"
_REMEMBERED = 500  #: characters
_SIGNATURE = "X-Amz-Signature"


class Signed(NamedTuple):
    """What is to be verified of an HTTP request."""

    method: str
    path: str  #: as it was sent, still encoded
    query: str
    headers: Mapping[str, str]  #: by their names in lower case
    body: bytes


class Signature(NamedTuple):
    """A signature, with what it is of."""

    key: str
    scope: str  #: date/region/service/aws4_request
    at: str
    headers: tuple[str, ...]
    value: str
    presigned_for: int | None = None  #: seconds

    @property
    def region(self) -> str:
        return self.scope.split("/")[1]


def _remembered(of: Any, text: str) -> Any:
    """Return the result of a function with a cache for a text; a long text is not cached."""
    return of(text) if len(text) <= _REMEMBERED else of.__wrapped__(text)


def read(headers: Mapping[str, str], query: str) -> Signature | None:
    """Return the signature of a request; None if it has none. Raises SqsError for one that is not complete."""
    header = headers.get("authorization")
    if header is not None:
        return _of_header(header, headers)
    if _SIGNATURE in query:
        return _of_query(dict(parse_qsl(query, keep_blank_values=True)))
    return None


def region_of(headers: Mapping[str, str], query: str) -> str:
    """Return the region that an unverified signature names; empty if it names none."""
    _, _, credential = headers.get("authorization", "").partition("Credential=")
    if not credential and _SIGNATURE in query:
        credential = dict(parse_qsl(query)).get("X-Amz-Credential", "")
    parts = credential.split("/", 4)
    return parts[2] if len(parts) == 5 else ""


def _of_header(header: str, headers: Mapping[str, str]) -> Signature:
    before, _, rest = header.partition("Signature=")
    value, _, after = rest.partition(",")
    algorithm, parts = _remembered(_parts, before + after)
    if algorithm != _ALGORITHM:
        raise _incomplete("Authorization header requires 'AWS4-HMAC-SHA256'.")
    parts = {**parts, "Signature": value.strip()}
    for name in ("Credential", "Signature", "SignedHeaders"):
        if not parts.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter.")
    at = headers.get("x-amz-date")
    if at is None:
        raise _incomplete("Authorization header requires existence of a 'X-Amz-Date' header.")
    return _made(parts["Credential"], at, parts["SignedHeaders"], parts["Signature"], None)


@lru_cache(maxsize=1000)
def _parts(header: str) -> tuple[str, dict[str, str]]:
    """Return the algorithm and the parts of a header without the signature: a client sends the same ones all day."""
    algorithm, _, rest = header.partition(" ")
    return algorithm, dict(part.strip().partition("=")[::2] for part in rest.split(","))


def _of_query(fields: Mapping[str, str]) -> Signature:
    if fields.get("X-Amz-Algorithm") != _ALGORITHM:
        raise _incomplete("X-Amz-Algorithm must be AWS4-HMAC-SHA256.")
    for name in ("X-Amz-Credential", "X-Amz-Date", "X-Amz-SignedHeaders"):
        if not fields.get(name):
            raise _incomplete(f"AWS query-string parameters must include '{name}'.")
    expires = fields.get("X-Amz-Expires", "900")
    if not (expires.isascii() and expires.isdigit() and int(expires[:9]) <= _LONGEST_LIFE):
        raise _incomplete("X-Amz-Expires must be a number of seconds, at most 604800.")
    credential, at, headers = (fields[f"X-Amz-{name}"] for name in ("Credential", "Date", "SignedHeaders"))
    return _made(credential, at, headers, fields.get(_SIGNATURE, ""), int(expires))


def _made(credential: str, at: str, headers: str, value: str, presigned_for: int | None) -> Signature:
    key, _, scope = credential.partition("/")
    parts = scope.split("/")
    if len(parts) != 4 or parts[3] != "aws4_request" or not all(parts):
        raise _incomplete("Credential must have exactly 5 slash-delimited elements.")
    if _TIME.fullmatch(at) is None:
        raise _incomplete("Date must be in ISO-8601 'basic format'.")
    return Signature(key, scope, at, tuple(headers.split(";")), value, presigned_for)


def verify(signature: Signature, secret: str, request: Signed, now: float) -> None:
    """Raise SqsError unless the signature is that of this request, made in time with this secret.

    `now`: seconds since the epoch.
    """
    date, _, of, _ = signature.scope.split("/")
    if of != "sqs" or not signature.at.startswith(date):
        raise _wrong("Credential should be scoped to the service and the date of the request.")
    if "host" not in signature.headers:
        raise _wrong("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    if "x-amz-target" in request.headers and "x-amz-target" not in signature.headers:
        raise _wrong("'X-Amz-Target' must be a 'SignedHeader' in the AWS Authorization.")
    _check_time(signature, now)
    digest = hashlib.sha256(request.body).hexdigest()
    claimed = request.headers.get("x-amz-content-sha256", digest)
    if claimed not in (digest, _UNSIGNED):
        raise _wrong("The provided 'x-amz-content-sha256' header does not match what was computed.")
    canonical = _canonical(signature, request, claimed)
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{signature.at}\n{signature.scope}\n{hashed}"
    wanted = hmac.digest(_signing_key(secret, signature.scope), text.encode(), "sha256").hex()
    if not hmac.compare_digest(wanted.encode(), signature.value.encode(errors="replace")):
        raise _wrong(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details."
        )


def _check_time(signature: Signature, now: float) -> None:
    try:
        at = datetime.fromisoformat(signature.at).timestamp()  # twenty times as fast as `strptime`
    except ValueError:
        raise _incomplete("Date must be in ISO-8601 'basic format'.") from None
    skew = f"{SKEW // 60} min."
    valid, shown = (SKEW, skew) if signature.presigned_for is None else (signature.presigned_for,) * 2
    if at > now + SKEW:
        later = f"is still later than {_basic(now + SKEW)} ({_basic(now)} + {skew})"
        raise _wrong(f"Signature not yet current: {signature.at} {later}")
    if at < now - valid:
        earlier = f"is now earlier than {_basic(now - valid)} ({_basic(now)} - {shown})"
        raise _wrong(f"Signature expired: {signature.at} {earlier}")


def _basic(at: float) -> str:
    """Return a time in ISO 8601's basic format."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))


def _canonical(signature: Signature, request: Signed, digest: str) -> str:
    """Return the form of a request that is signed."""
    path = _remembered(_canonical_path, request.path)
    query = _canonical_query(request.query) if request.query else ""
    headers = "".join([f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in signature.headers])
    return "\n".join((request.method, path, query, headers, ";".join(signature.headers), digest))


@lru_cache(maxsize=1000)
def _canonical_path(path: str) -> str:
    quoted = quote(normpath(path) + "/" * (path.endswith("/") and path != "/"), safe="/-_.~")
    return quoted[1:] if quoted.startswith("//") else quoted


def _canonical_query(query: str) -> str:
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(query, keep_blank_values=True)
        if name != _SIGNATURE
    )
    return "&".join(f"{name}={value}" for name, value in pairs)


@lru_cache(maxsize=256)
def _signing_key(secret: str, scope: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _incomplete(message: str) -> SqsError:
    return SqsError("IncompleteSignatureException", message)


def _wrong(message: str) -> SqsError:
    return SqsError("InvalidSignatureException", message)
