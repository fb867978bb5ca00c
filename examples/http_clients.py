"""Clients in other languages over HTTP: `python examples/http_clients.py javascript`, or `go`.

Starts a Redis and the HTTP service, and runs `examples/clients/client.mjs` with node, or `client.go` with go.
"""

import os
import subprocess
import sys

from reliq.embedded import EmbeddedRedis

from running import HERE, http_service  # isort: skip

COMMANDS = {
    "javascript": ["node", str(HERE / "clients" / "client.mjs")],
    "go": ["go", "run", str(HERE / "clients" / "client.go")],
}


def main(language: str) -> int:
    with EmbeddedRedis() as redis, http_service(redis.url) as address:
        try:
            return subprocess.run(COMMANDS[language], env={**os.environ, "RELIQ_API": address}, check=False).returncode
        except FileNotFoundError as error:
            sys.exit(f"{error.filename} is not installed")


if __name__ == "__main__":
    if sys.argv[1:] not in [[language] for language in COMMANDS]:
        sys.exit(f"usage: python examples/http_clients.py {'|'.join(COMMANDS)}")
    sys.exit(main(sys.argv[1]))
