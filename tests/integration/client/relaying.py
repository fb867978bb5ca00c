"""A relay as a process of its own, to be killed."""

import sys
import threading

import sqlalchemy

import reliq
from reliq.contrib import sql

if __name__ == "__main__":
    sql.relay(sqlalchemy.create_engine(sys.argv[1]), reliq.Reliq(sys.argv[2]), threading.Event(), pause=0.01)
