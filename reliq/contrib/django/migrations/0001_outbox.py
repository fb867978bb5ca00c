"""The tables of `reliq.contrib.sql`."""

from typing import Any

from django.db import migrations
from sqlalchemy.schema import CreateTable, DropTable

from reliq.contrib.django.outbox import engine_of
from reliq.contrib.sql import outbox, parked

_TABLES = (outbox, parked)


def _create(_: Any, editor: Any) -> None:
    dialect = engine_of(editor.connection.alias).dialect
    for table in _TABLES:
        editor.execute(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect)))


def _drop(_: Any, editor: Any) -> None:
    dialect = engine_of(editor.connection.alias).dialect
    for table in _TABLES:
        editor.execute(str(DropTable(table, if_exists=True).compile(dialect=dialect)))


class Migration(migrations.Migration):
    """Creates the tables, unless `reliq.contrib.sql.create_tables` has done so."""

    initial = True
    operations = (migrations.RunPython(_create, _drop),)
