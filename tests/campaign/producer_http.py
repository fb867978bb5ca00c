"""Sends over HTTP. A call whose answer is lost is repeated with the same Idempotency-Key until it is answered."""

import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

from reliq.errors import OutcomeUnknown, RedisUnavailable
from tests.campaign.tasks import QUEUE, Outgoing

_GIVE_UP = 30.0  #: seconds
_PAUSE = 0.1


class HttpSender:
    """Sends to an HTTP service that may be killed and started again."""

    def __init__(self, url: str) -> None:
        self._messages = f"{url}/v1/queues/{QUEUE}/messages"

    def send(self, messages: Sequence[Outgoing]) -> list[str]:
        return [self._send(message) for message in messages]

    def _send(self, message: Outgoing) -> str:
        fields = {"body": json.loads(message.body), "delay": message.delay, "key": message.key or None,
                  "dedup_key": message.dedup_key or None}  # fmt: skip
        wanted = {name: value for name, value in fields.items() if value}
        headers = {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
        answer: dict[str, str] = json.loads(self._ask("POST", self._messages, json.dumps(wanted).encode(), headers))
        return answer["id"]

    def cancel(self, identity: str) -> str:
        answer: dict[str, str] = json.loads(self._ask("DELETE", f"{self._messages}/{identity}", None, {}))
        return answer["result"]

    def _ask(self, method: str, url: str, data: bytes | None, headers: dict[str, str]) -> bytes:
        until = time.monotonic() + _GIVE_UP
        while True:
            request = urllib.request.Request(url, data=data, headers=headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    return bytes(response.read())
            except urllib.error.HTTPError as error:
                told = error.read()
                if method == "DELETE" and error.code in (404, 409):
                    return told
                if error.code < 500 and "retry_after" not in json.loads(told):  # the first request may still run
                    raise RedisUnavailable(f"HTTP {error.code}: {told[:300]!r}") from None
                problem = f"HTTP {error.code}"
            except (OSError, ValueError) as error:  # the connection ended, or was refused
                problem = str(error)
            if time.monotonic() > until:
                raise OutcomeUnknown(f"no answer within {_GIVE_UP:g} s: {problem}")
            time.sleep(_PAUSE)
