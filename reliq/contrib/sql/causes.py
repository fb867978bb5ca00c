"""Why the database refuses a call, in one line."""

from sqlalchemy.exc import SQLAlchemyError

from reliq.runtime.logging import one_line

_MISSING = ("42P01", "42703")  #: SQLSTATE of PostgreSQL: no such table, no such column
_ADVICE = "run reliq.contrib.sql.create_tables, or with Django `manage.py migrate`"


def cause_of(error: SQLAlchemyError) -> str:
    """Return the first line of the database's error, and what to run if it lacks one of the tables or columns."""
    original = getattr(error, "orig", None) or error
    first = one_line(str(original).strip().partition("\n")[0])
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"{text}; {_ADVICE}" if _lacks_table(original, first) else text


def _lacks_table(original: BaseException, first: str) -> bool:
    code = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)  # psycopg, psycopg2
    return code in _MISSING or first.startswith("no such ") or " has no column named " in first  # SQLite
