"""A script with child processes that send, while their parent sends and holds messages of its own.

Arguments: how children are started (fork, spawn, forkserver), how many, and how often each sends. Prints the ids.
"""

import faulthandler
import multiprocessing
import signal
import sys

import reliq

faulthandler.register(signal.SIGUSR1)  # in each child too
app = reliq.Reliq()
queue, held = app.queue("orders"), app.queue("held")


def work(sends: int) -> list[str]:
    ids = [queue.send(number) for number in range(sends)]
    return ids + queue.send_many(range(sends))


def main(method: str, children: int, sends: int) -> None:
    ids = [queue.send("before the children")]
    held.send_many(range(10))
    with held.consumer(lease=2) as consumer:
        messages = consumer.claim(limit=10)
        with multiprocessing.get_context(method).Pool(children, maxtasksperchild=1) as pool:
            results = pool.map_async(work, [sends] * 2 * children, chunksize=1)
            while not results.ready():
                ids += work(1)
                results.wait(0.01)
            for one in results.get():
                ids += one
            pool.close()  # the end of the block would terminate it, and hang: it may miss a child that begins now
            pool.join()
        consumer.ack(*messages)  # raises LeaseLost, had a child ended the lease of its parent
    print(*ids, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
