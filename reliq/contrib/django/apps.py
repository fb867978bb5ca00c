"""The application for INSTALLED_APPS, which has the migration of the outbox."""

from django.apps import AppConfig


class ReliqConfig(AppConfig):
    """`reliq.contrib.django`, labelled `reliq`."""

    name = "reliq.contrib.django"
    label = "reliq"
    verbose_name = "reliq"
