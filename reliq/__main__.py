"""python -m reliq"""

from reliq.cli import entry

entry()
