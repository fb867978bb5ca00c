"""Upgrades: functions that turn the bodies of earlier versions into the present one, when a handler takes them."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from reliq.contract.values import whole
from reliq.errors import InvalidBody, InvalidHandler
from reliq.model.dead_letter import DEAD_FROM
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage, encode_body
from reliq.model.policy import Dead, Retry
from reliq.model.signatures import HandlerFunction, TypedCall, check_callable, is_async, name_of, typed_call

VERSION_HEADER = "body-version"  #: of a message; without it, its body has version 1
MOST_VERSIONS = 1_000_000

UpgradeFunction = Callable[[Any], Any]


class Upgrades:
    """The upgrades of one queue's bodies."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._steps: dict[int, Callable[[bytes], bytes]] = {}  #: by the version that they make

    def add(self, version: int, function: UpgradeFunction) -> None:
        """Add the function that makes bodies of `version` from those of the version before. Raises InvalidHandler."""
        whole(version, "version", 2, MOST_VERSIONS)
        what = f"the upgrade of queue {self._queue!r} to version {version}"
        if version in self._steps:
            raise InvalidHandler(f"{what} is defined twice, here as {name_of(function)}: there is one for each version")
        check_callable(function, what, "the body")
        if is_async(function):
            raise InvalidHandler(f"{what} is {name_of(function)}, an async function, which is never awaited: use def")
        typed = typed_call(function, what, bare=Any)
        if typed is None or typed.read is None:
            raise InvalidHandler(f"{what} is {name_of(function)}, which takes the message: it must take the body")
        read = typed.read

        def step(body: bytes) -> bytes:
            old = read(body)
            try:
                return encode_body(function(old))
            except (Retry, Dead, InvalidBody):
                raise
            except (Exception, SystemExit) as error:
                raise InvalidBody(f"{what}, {name_of(function)}, failed: {error!r}", "$") from error

        self._steps[version] = step

    @property
    def latest(self) -> int:
        """The version that handlers take."""
        return max(self._steps, default=1)

    def check(self) -> None:
        """Raise InvalidHandler if a version is left out."""
        for version in range(2, self.latest):
            if version not in self._steps:
                raise InvalidHandler(
                    f"queue {self._queue!r} has an upgrade to version {self.latest} and none to version {version}: "
                    f"add @app.upgrade({self._queue!r}, version={version})"
                )

    def current(self, message: Message) -> bytes:
        """Return the body in the latest version. Raises InvalidBody, and Retry for a later version."""
        body, text = message.body, message.headers.get(VERSION_HEADER)
        if not self._steps and (text is None or message.headers.get(DEAD_FROM, self._queue) != self._queue):
            return body  # what died in another queue has the version of that
        version = 1 if text is None else _version_of(text)
        if version > self.latest:
            raise Retry(
                f"the body has version {version}, and this worker knows versions up to {self.latest}: "
                "it is tried again until a newer worker takes it"
            )
        for step in range(version + 1, self.latest + 1):
            body = self._steps[step](body)
        return body


def stamp(messages: Iterable[NewMessage], version: int) -> None:
    """Note the version of their bodies, if it is not 1, in the headers of messages that have none."""
    for message in messages:
        if version > 1 and VERSION_HEADER not in message.headers:
            message.headers = {**message.headers, VERSION_HEADER: str(version)}


def reading(function: HandlerFunction, typed: TypedCall | None, upgrades: Upgrades) -> HandlerFunction:
    """Return a function of the message that reads and upgrades its body, and calls `function` with it.

    A function that takes only the message gets it with its body upgraded.
    """

    def read(message: Message) -> Any:
        body = upgrades.current(message)
        if typed is None:
            return function(message.with_body(body))
        return typed.call(_read(typed, body), message)

    if typed is None or typed.results is None:
        return functools.update_wrapper(read, function)

    def read_all(message: Message) -> Any:
        return typed.call(_read(typed, upgrades.current(message)), message, message.results(typed.results))

    async def read_all_async(message: Message) -> Any:
        body = _read(typed, upgrades.current(message))
        return await typed.call(body, message, await message.results(typed.results))

    return functools.update_wrapper(read_all_async if is_async(function) else read_all, function)


def _read(typed: TypedCall, body: bytes) -> Any:
    return None if typed.read is None else typed.read(body)


def _version_of(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= MOST_VERSIONS:
        return int(text)
    raise InvalidBody(f"the header {VERSION_HEADER} is {text!r}: a whole number from 1 on", "$")
