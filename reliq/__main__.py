"""python -m reliq"""

from reliq.cli.main import entry

entry()
