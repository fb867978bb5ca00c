"""The application of the demo's workers: parse a Python file, count its parts, store the result."""

import ast
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


_connection: sqlite3.Connection | None = None


def results() -> sqlite3.Connection:
    """Return this process's connection to the results."""
    global _connection
    if _connection is None:
        _connection = sqlite3.connect(os.environ[RESULTS], timeout=30, isolation_level=None)
        _connection.execute("PRAGMA journal_mode = WAL")
        _connection.execute("PRAGMA synchronous = OFF")
    return _connection


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
