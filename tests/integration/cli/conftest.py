"""Commands, run in this process."""

import pytest

from reliq.cli import main


@pytest.fixture
def say(app, capsys):
    """Run a command; the exit status, what it printed, and what it said on standard error."""

    def run(*arguments):
        status = main.main([*arguments, "--url", app.url])
        return status, *capsys.readouterr()

    return run
