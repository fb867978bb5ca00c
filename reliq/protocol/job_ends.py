"""The end of a job: how a feature sends a message when all messages of a staged job have ended."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from reliq.model.keys import JobKeys
from reliq.ops import Steps


@dataclass(frozen=True, slots=True)
class JobEnd:
    """What the writer of a job asks of it."""

    #: with the queue of the message, and the name of the job: the batch that its messages are of
    open: Callable[[str, str], Steps[str]]
    #: before the job is committed: the batch, the job's home, name and run, and the queues of its messages
    close: Callable[[str, JobKeys, str, str, Collection[str]], Steps[None]]
    abandon: Callable[[str], Steps[None]]  #: the job is aborted
