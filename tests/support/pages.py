"""Run the code blocks of a page of the documentation, as a reader would.

`python` blocks share a namespace, `sh` and `console` blocks a folder and its files. A block with a title, as in
```python title="shop.py"```, is written to this file. What else a block needs is said in a comment right above it:

    <!-- not run: REASON -->       it is not run
    <!-- terminal: TEXT -->        it runs in a terminal of its own to the end of the page, once TEXT was printed
    <!-- before: CODE -->          this Python code is run before it; may have several lines
    <!-- after: CODE -->           likewise, after it; `reader` is the Reader
    <!-- spark: REASON -->         it is run only where a JVM may be started

The requests of an `http` block are sent to an HTTP service, and must be answered 2xx. LEASE stands for the lease of an
answer before, ID for its first message.

A `console` block has commands behind `$ ` and what they print; `...` stands for any text. A command is repeated until
it prints this, because a worker in another terminal needs its time. A variable that a terminal prints as
`export NAME=value` is set from then on, as a reader copies the line.
"""

import ast
import asyncio
import contextlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tests.integration.api.serving import serving
from tests.support.workers import ROOT, eventually

LANGUAGES = ("python", "sh", "console", "http")
_BLOCK = re.compile(
    r"(?P<marks>(?:^ *<!-- [a-z ]+:\s.*?-->\n\n?)*)^ *```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"<!-- (not run|spark|terminal|before|after):\s(.*?)\s?-->", re.DOTALL)
#: Seconds after which a command hangs. No measure of speed: a JVM beside other work may need minutes.
_PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Block:
    """A code block, where it begins, and what is said about it."""

    page: Path
    line: int
    language: str
    code: str
    marks: dict[str, str]
    file: str = ""

    def __str__(self) -> str:
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in _BLOCK.finditer(text)]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    title = re.search(r'title="([^"]+)"', found["rest"])
    return Block(
        page,
        line=text.count("\n", 0, found.start("code")),
        language=found["language"],
        code=textwrap.dedent(found["code"]),
        marks=dict(_MARK.findall(found["marks"])),
        file=title[1] if title else "",
    )


class Reader:
    """A reader of one page, with a folder, an environment and terminals."""

    def __init__(self, folder: Path, environment: dict[str, str], jvm: bool = False) -> None:
        self.folder = folder
        self._jvm = jvm
        self.environment = {**os.environ, **environment}
        self.types = ""  #: what the reader types when the next command asks; set by `before`
        self._names: dict[str, Any] = {"__name__": "__main__", "reader": self}
        self._terminals: list[Terminal] = []
        self._loop = asyncio.Runner()
        self._service: httpx.Client | None = None
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in reversed(self._terminals):
            terminal.close()
        self._opened.close()
        self._loop.close()
        for name, module in list(sys.modules.items()):  # another page has a module of the same name
            if Path(getattr(module, "__file__", None) or "/").is_relative_to(self.folder):
                del sys.modules[name]

    def printed(self) -> str:
        """Return what the terminal that was opened last has printed."""
        return self._terminals[-1].printed

    def follow(self, block: Block) -> None:
        """Do what the block says; an error names the page and the line."""
        if "not run" in block.marks or ("spark" in block.marks and not self._jvm):
            return
        try:
            self._python(block, block.marks.get("before", ""))
            if block.file:
                (self.folder / block.file).write_text(block.code, encoding="utf-8")
            elif text := block.marks.get("terminal"):
                self._open(block.code, text)
            elif block.language == "python":
                self._python(block, block.code)
            elif block.language == "http":
                self._http(block.code)
            elif block.language == "console":
                self._console(block.code)
            else:
                self._shell(block.code)
            self._python(block, block.marks.get("after", ""))
        except Exception as error:
            raise AssertionError(f"{block}: {error}\n\n{block.code}") from error

    def _python(self, block: Block, code: str) -> None:
        code = "\n" * block.line + textwrap.dedent(code) if code else ""
        compiled = compile(code, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if compiled.co_flags & inspect.CO_COROUTINE:
            self._loop.run(eval(compiled, self._names))
        else:
            exec(compiled, self._names)

    def _shell(self, code: str) -> str:
        typed, self.types = self.types, ""
        done = subprocess.run(
            ["/bin/sh", "-ec", code], cwd=self.folder, env=self.environment, input=typed, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_PATIENCE, check=False,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"exit status {done.returncode}\n{done.stdout}")
        return done.stdout

    def _http(self, code: str) -> None:
        self._service = self._service or self._opened.enter_context(serving(self.environment["RELIQ_URL"]))
        for method, path, headers, body in _requests(code):
            for name in ("LEASE", "ID"):
                path, body = (text.replace(name, self._names.get(name, name)) for text in (path, body))
            answer = self._service.request(method, path, headers=headers, content=body)
            assert answer.is_success, f"{method} {path} was answered {answer.status_code} {answer.text}"
            if "lease" in answer.json() and (leased := answer.json()["messages"]):
                self._names |= {"LEASE": answer.json()["lease"], "ID": leased[0]["id"]}

    def _console(self, code: str) -> None:
        for command, wanted in _commands(code):
            until = time.monotonic() + _PATIENCE
            while not _is_like(printed := self._shell(command), wanted or "..."):
                if time.monotonic() > until:
                    raise AssertionError(f"`{command}` printed\n{printed}\nand not\n{wanted}")

    def _open(self, code: str, text: str) -> None:
        for earlier in [one for one in self._terminals if one.application and one.application in code]:
            earlier.close()  # as Ctrl-C does, before the reader types it again
            self._terminals.remove(earlier)
        terminal = Terminal(code, self.folder, self.environment)
        self._terminals.append(terminal)
        eventually(lambda: text in terminal.printed, timeout=_PATIENCE, what=f"{text!r} in {terminal.printed!r}")
        self.environment.update(re.findall(r"^ *export (\w+)=(\S+)$", terminal.printed, re.MULTILINE))
        os.environ.update({name: self.environment[name] for name in ("RELIQ_URL",) if name in self.environment})


class Terminal:
    """A command that runs until the page ends, and what it has printed."""

    def __init__(self, code: str, folder: Path, environment: dict[str, str]) -> None:
        self.printed = ""
        self.application = "".join(re.findall(r"\breliq worker \w+:\w+", code))  #: of a worker; another one replaces it
        self._process = subprocess.Popen(
            ["/bin/sh", "-ec", f"exec {code}"], cwd=folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.printed += line

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        self._reading.join()


def _commands(code: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console, and what it prints."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        while command.endswith("\\"):
            more, _, printed = printed.partition("\n")
            command = f"{command[:-1]} {more}"
        yield command, printed


def _requests(code: str) -> Iterator[tuple[str, str, dict[str, str], str]]:
    """Yield method, path, headers and body of each request."""
    for request in re.split(r"^(?=(?:GET|POST|PUT|PATCH|DELETE) )", code, flags=re.MULTILINE)[1:]:
        head, _, body = request.partition("\n\n")
        first, *headers = head.splitlines()
        method, path = first.split()
        yield method, path, dict(line.split(": ", 1) for line in headers), body.strip()


def _is_like(printed: str, wanted: str) -> bool:
    pattern = r".*?".join(map(re.escape, _lines(wanted).split("...")))
    return re.fullmatch(pattern, _lines(printed), re.DOTALL) is not None


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def commands_on_path(folder: Path) -> str:
    """Make `reliq` and `python` commands of this checkout; return a PATH that begins with them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, what in (
        ("reliq", f"{sys.executable} -m reliq"),
        ("python", sys.executable),
        ("python3", sys.executable),
    ):
        (folder / name).write_text(f'#!/bin/sh\nexec {what} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
