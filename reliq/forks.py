"""Forks: what belongs to the process that forked this one, a socket or a producer's sequence, must not be used here."""

import os

generation = 0  #: how many forks lie between the first process and this one


def _after_fork() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_after_fork)
