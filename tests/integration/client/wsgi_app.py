"""A web application that sends: once where it is loaded, in uWSGI's master, and then with every request."""

import os

import reliq

queue = reliq.Reliq().queue("orders")
first = queue.send("sent by the master, before it forks")


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/first":
        return [first.encode()]
    return [f"{os.getpid()} {queue.send('x')}".encode()]
