"""The column `options` of the outbox, in tables that an earlier version has created."""

from typing import Any

from django.db import migrations
from sqlalchemy.schema import CreateColumn

from reliq.contrib.django.outbox import engine_of
from reliq.contrib.sql import outbox, parked


def _add(_: Any, editor: Any) -> None:
    connection = editor.connection
    for table in (outbox, parked):
        with connection.cursor() as cursor:
            columns = connection.introspection.get_table_description(cursor, table.name)
        if "options" not in {column.name for column in columns}:
            declared = CreateColumn(table.c.options).compile(dialect=engine_of(connection.alias).dialect)
            editor.execute(f"ALTER TABLE {table.name} ADD COLUMN {declared}")


class Migration(migrations.Migration):
    """Adds the column, unless `reliq.contrib.sql.create_tables` has done so."""

    dependencies = (("reliq", "0001_outbox"),)
    operations = (migrations.RunPython(_add, migrations.RunPython.noop),)
