"""The application of the campaign's workers: it notes each claim, run and settle, without changing any of them."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

import reliq
from reliq import ops
from reliq.model.element import BLANK, Undecodable
from reliq.model.message import Message
from tests.campaign.history import History
from tests.campaign.names import FOLDER, OWN_PID, PROCESS, WORK
from tests.campaign.tasks import FAIL_DELAY, QUEUE, Task

app = reliq.Reliq()
_seconds = float(os.environ.get(WORK, "0.001"))


def _open_history() -> History:
    name = os.environ[PROCESS]
    if os.environ[OWN_PID] != str(os.getpid()):
        name += f".{os.getpid()}"
    return History(Path(os.environ[FOLDER]), name)


history = _open_history()


def _id(element: bytes) -> str:
    try:
        return Message.decode(QUEUE, element).id
    except Undecodable:
        return element.hex()


def _ids(elements: Iterable[bytes]) -> list[str]:
    return [_id(element) for element in elements if element != BLANK]


def _note_claimed(since: float, elements: Iterable[bytes]) -> None:
    if ids := _ids(elements):
        history.note("claim", "ok", since=since, ids=ids)


def _notes_claims(make: Callable[..., Any], elements_of: Callable[[Any], Iterable[bytes]]) -> Callable[..., Any]:
    """Return the function that makes an op, whose answer is noted as a claim. `since`: before it was sent."""

    def noting(*arguments: Any, **options: Any) -> Any:
        op, since = make(*arguments, **options), time.monotonic()

        def read(reply: Any) -> Any:
            answer = op.read(reply)
            _note_claimed(since, elements_of(answer))
            return answer

        return msgspec.structs.replace(op, read=read)

    return noting


def _notes_settles(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same for the op that settles: it notes what it asks for, and the letter for each message."""

    def noting(keys: Any, consumer: Any, lease: Any, acks: Any, moves: Any = (), *rest: Any, **options: Any) -> Any:
        op = make(keys, consumer, lease, acks, moves, *rest, **options)
        if not acks and not moves:
            return op
        ids, to = _ids(acks), ["ack"] * len(acks)
        for move in moves:
            ids.append(_id(move.element))
            to.append(str(move.destination))
        delays = {_id(move.element): move.delay for move in moves if move.delay}
        call = history.invoke("settle", ids=ids, to=to, delays=delays)

        def read(reply: Any) -> Any:
            answer = op.read(reply)
            if answer.codes:
                call.ends("ok", codes=str(answer.codes))
            return answer

        return msgspec.structs.replace(op, read=read)

    return noting


ops.settle = _notes_claims(_notes_settles(ops.settle), lambda answer: answer.elements)
ops.claim = _notes_claims(ops.claim, lambda answer: answer.elements)
ops.block = _notes_claims(ops.block, lambda element: () if element is None else (element,))
ops.read_back = _notes_claims(ops.read_back, lambda elements: elements)


@app.handler(QUEUE, retry=reliq.fixed(FAIL_DELAY, limit=50))
def work(message: reliq.Message) -> None:
    """Do what the body says, and note it."""
    task = msgspec.json.decode(message.body, type=Task)
    run = history.invoke("run", id=message.id, name=task.name)
    if task.do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(_seconds)
    if task.do == "fail" and not message.failures:
        run.ends("fail", then="retried")
        raise reliq.Retry(delay=FAIL_DELAY)
    if task.do == "reject":
        run.ends("fail", then="rejected")
        raise reliq.Dead("rejected")
    run.ends("ok")
