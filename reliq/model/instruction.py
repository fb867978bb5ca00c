"""What a person tells a worker: to pause, to go on, to stop. It learns that with its next heartbeat."""

from enum import StrEnum


class Instruction(StrEnum):
    """An instruction to a worker process."""

    PAUSE = "pause"  #: hand back what has not started, finish what runs, and claim nothing
    RESUME = "resume"  #: claim again
    STOP = "stop"  #: shut down cleanly, as after SIGTERM

    def field(self, process: str) -> str:
        """Return the instruction to a process as a field of `told`; no id of a message has a blank."""
        return f" {self.value} {process}"


def latest(told: "tuple[tuple[str, int], ...]", process: str) -> tuple[int, Instruction] | None:
    """Return the latest instruction to a process among what its queue was told: the ms of it, and what it is."""
    if not told:
        return None
    at = dict(told)
    return max(((at[one.field(process)], one) for one in Instruction if one.field(process) in at), default=None)
