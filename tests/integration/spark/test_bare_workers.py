"""A standalone cluster whose workers have a bare Python: the commands of the page bring them what they need."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from tests.integration.spark import shipped_job
from tests.integration.spark.standalone import SPARK_BIN, standalone
from tests.support.pages import blocks
from tests.support.workers import ROOT

REGISTRY = ("PIP_", "SSL_", "REQUESTS_", "LANG", "HTTP", "http")  #: environment: how a registry is reached


def bare_python(folder: Path) -> Path:
    """Make a Python without a package, and return the folder of its commands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    for package in ("reliq", "msgspec", "redis", "pyarrow", "pyspark"):
        found = subprocess.run([python, "-I", "-c", f"import {package}"], capture_output=True, text=True, check=False)
        assert f"No module named '{package}'" in found.stderr
    return folder / "bin"


def test_what_py_files_ships_ends_with_the_error_of_the_page(tmp_path):
    """`--py-files` puts zips on the path of the workers: no Python imports a compiled module from one."""
    package, archive = Path(msgspec.__file__).parent, tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as packages:
        for file in package.iterdir():
            if file.is_file():
                packages.write(file, f"msgspec/{file.name}")
    command = [str(bare_python(tmp_path / "bare") / "python"), "-c", "import msgspec"]
    done = subprocess.run(command, env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, check=False)
    error = done.stderr.splitlines()[-1]
    assert error == "ModuleNotFoundError: No module named 'msgspec._core'"
    assert f"`{error}`" in (ROOT / "docs" / "how-to" / "spark.md").read_text()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_workers_with_a_bare_python_run_the_archive_of_the_page(app, url, tmp_path):
    """The commands are those of the page, word by word but for the folder of reliq, the cluster and the job."""
    (shipping,) = [one for one in blocks(ROOT / "docs" / "how-to" / "spark.md") if "venv-pack -p" in one.code]
    java = shutil.which("java")
    assert java is not None
    path = [bare_python(tmp_path / "bare"), SPARK_BIN, Path(java).parent, "/usr/bin", "/bin"]
    bare = {"PATH": os.pathsep.join(map(str, path)), "HOME": str(tmp_path), "PYTHONNOUSERSITE": "1"}
    bare |= {"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}

    with standalone(tmp_path, bare) as cluster:
        # No task begins before both workers are there: else one that comes late finds none left.
        both = ["spark.cores.max=2", "spark.scheduler.minRegisteredResourcesRatio=1"]
        both.append("spark.scheduler.maxRegisteredResourcesWaitingTime=1200s")
        settings = ["spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1", *both]
        master = f"--master {cluster} --executor-memory 512m {' '.join(f'--conf {one}' for one in settings)}"
        commands = shipping.code.replace("pip install .", f"pip install {ROOT}").replace("--master ...", master)
        commands = commands.replace("job.py", shipped_job.__file__)
        assert all(text in commands for text in (str(ROOT), cluster, shipped_job.__file__))
        registry = {name: value for name, value in os.environ.items() if name.startswith(REGISTRY)}
        done = subprocess.run(
            ["sh", "-ec", commands], env={**bare, **registry, "RELIQ_URL": url}, cwd=tmp_path,
            capture_output=True, text=True, check=False, timeout=1500,
        )  # fmt: skip
    assert done.returncode == 0, f"the page failed; it may need the package registry:\n{done.stderr[-4000:]}"

    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["count"] == app.queue("orders").stats().ready == shipped_job.ROWS
    hosts = {Path(task["python"]).relative_to(tmp_path).parts[0] for task in seen["tasks"]}
    assert hosts == {"127.0.0.2", "127.0.0.3"}, seen  # each worker unpacked the archive below its own folder
    assert all(Path(task["reliq"]).is_relative_to(task["python"]) for task in seen["tasks"]), seen
