"""The rows of the fault campaign in their bounded versions, by the command that developers have."""

import json
import os

import pytest

from tests.campaign.__main__ import main
from tests.campaign.scenarios import SCENARIOS
from tests.support import javascript
from tests.support.workers import process
from tools.versions import BEFORE_PARTITIONS, sources

ROOT_ONLY = {"disk-full"}


def rows():
    for one in SCENARIOS:
        forbidden = one.name in ROOT_ONLY and os.geteuid() != 0
        marks = pytest.mark.skipif(forbidden, reason="mounts a file system")
        yield pytest.param(one, id=one.name, marks=marks)


@pytest.fixture
def options(scenario, tmp_path):
    """What the scenario needs besides its name."""
    if scenario.setup.javascript:
        try:
            javascript.folder()
        except LookupError as error:
            pytest.skip(str(error))
    if not scenario.needs_older:
        return []
    try:
        return ["--older", str(sources(BEFORE_PARTITIONS, tmp_path / "older"))]
    except LookupError as error:
        pytest.skip(str(error))


@pytest.mark.campaign
@pytest.mark.parametrize("scenario", list(rows()))
def test_every_promise_of_the_row_is_kept(scenario, options):
    row = ("--scenario", scenario.name, "--seed", "7", "--json", *options)
    with process(*row, program="tests.campaign") as child:
        out, err = child.communicate(timeout=150)
    assert out, err.decode()
    result = json.loads(out)
    assert (child.returncode, result["verdict"]["broken"], result["good"]) == (0, {}, True), err.decode()
    assert result["seed"] == 7
    assert result["done"] >= scenario.volume
    assert result["verdict"]["messages"] > 10


def test_the_list_names_all_scenarios(capsys):
    assert main(["--scenario", "list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == [one.name for one in SCENARIOS]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["--scenario", "earthquake"], "'earthquake' is unknown: `python -m tests.campaign --scenario list`"),
        (["--scenario", "none", "--volume", "-1"], "volume"),
        (["--scenario", "none", "--duration", "0"], "duration"),
        (
            ["--scenario", "rolling-upgrade"],
            "rolling-upgrade needs another version of reliq: name its folder with --older",
        ),
        (["--scenario", "rolling-upgrade", "--older", "/nowhere"], "--older /nowhere has no package reliq"),
        (["--scenario", "none", "--older", "."], "none runs this version only: leave out --older"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, text, capsys):
    assert main(wrong) == 2
    assert text in capsys.readouterr().err


def test_histories_are_kept_in_an_empty_folder_only(tmp_path, capsys):
    (tmp_path / "of another run").touch()
    assert main(["--scenario", "none", "--keep", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
