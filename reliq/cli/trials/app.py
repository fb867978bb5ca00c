"""The application of the demo's workers: parse a Python file, count its parts, store the result."""

import ast
import functools
import os
import sqlite3
import time
from pathlib import Path

import reliq

app = reliq.Reliq()

RESULTS = "RELIQ_DEMO_RESULTS"  #: environment: the SQLite file that the results go to
QUEUE = "demo-files"


def count(path: Path) -> tuple[int, int, int]:
    """Count lines, functions and classes of a Python file; only lines in a file that Python cannot parse."""
    source = path.read_bytes()
    lines = source.count(b"\n")
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return lines, 0, 0
    functions = sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes)
    return lines, functions, sum(isinstance(node, ast.ClassDef) for node in nodes)


@functools.cache
def results() -> sqlite3.Connection:
    """Return this process's connection to the results."""
    connection = sqlite3.connect(os.environ[RESULTS], timeout=30, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    return connection


@app.handler(QUEUE)
def parse(message: reliq.Message) -> None:
    """Store the counts of a file. Idempotent: the row is the same however often it is written; `runs` counts that."""
    path = message.json()["path"]
    lines, functions, classes = count(Path(path))
    results().execute(
        "INSERT INTO results VALUES (?, ?, ?, ?, 1) ON CONFLICT (path) DO UPDATE SET runs = runs + 1",
        (path, lines, functions, classes),
    )
    results().execute("INSERT INTO runs VALUES (?, ?, ?)", (message.id, os.getpid(), time.time()))
