"""reliq.spark with each line of PySpark since 3.5: `python tools/spark_matrix.py [4.1 ...]` prints a table.

The newest version of each line comes from the package registry, into a virtual environment in .data/spark. 3.5 and
4.0 have to be refused in words; in the others the tests of reading, writing and streams run, one JVM at a time.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
TESTS = Path("tests", "integration", "spark")
VERSIONS = ("test_versions.py",)
ALL = (*VERSIONS, "test_batch_writer.py", "test_batch_reader.py", "test_results.py", "test_streams.py")
LINES = {"3.5": VERSIONS, "4.0": VERSIONS, "4.1": ALL, "4.2": ALL, "4.3": ALL}
PACKAGES = ("hypothesis", "pytest", "pytest-rerunfailures", "pytest-timeout", "pytest-xdist", "psutil")


def main(lines: list[str]) -> int:
    """Try these lines; return 1 if the tests of any have failed."""
    rows, failed = [], False
    for line in lines:
        python = environment(line)
        version = output(python, "-c", "import pyspark; print(pyspark.__version__)")
        print(f"PySpark {version}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            [python, "-m", "pytest", "-m", "not slow", "-rR", *(str(TESTS / name) for name in LINES[line])],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        print(done.stdout, flush=True)
        failed |= bool(done.returncode)
        rows.append(f"| {version} | {counts(done.stdout)} | {time.monotonic() - began:.0f} s |")
    print("| PySpark | tests | time |", "|---|---|---|", *rows, sep="\n")
    return int(failed)


def environment(line: str) -> Path:
    """Return the Python of a virtual environment with the newest PySpark of a line, and reliq as it is here."""
    folder = ROOT / ".data" / "spark" / line
    if not folder.exists():
        output(UV, "venv", "--quiet", "--python", sys.executable, folder)
    # 3.5 and 4.0 are below the range of the extra `spark`: its other packages, by name.
    install = ["--editable", ".[monitor,testing,embedded]", f"pyspark~={line}.0", "pyarrow>=18", "pandas>=2.2,<3"]
    output(UV, "pip", "install", "--quiet", "--upgrade-package", "pyspark", "--python", folder, *install, *PACKAGES)
    return folder / "bin" / "python"


def output(*command: str | Path) -> str:
    """Run a command of the set-up; what installs packages needs the registry, and says so where it is away."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed; it may need the package registry:\n{done.stderr}")
    return done.stdout.strip()


def counts(printed: str) -> str:
    """Return the counts of pytest's closing line: `75 passed, 2 skipped`."""
    found = re.findall(r"^=*\s*(\d+ (?:passed|failed|error|skipped).*) in [\d.]+s", printed, re.MULTILINE)
    return found[-1] if found else "ended without a result"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", nargs="*", metavar="LINE", help=f"of {', '.join(LINES)}; default: all")
    given = parser.parse_args().lines or list(LINES)
    if unknown := set(given) - set(LINES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(LINES)}")
    sys.exit(main(given))
