"""Settings of a Django project with one application, `shop`."""

import os

import django

SECRET_KEY = "only for this example"
INSTALLED_APPS = [
    *(["django_tasks"] if django.VERSION < (6,) else []),
    "reliq.contrib.django",  # the migration of the outbox
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SHOP_DB"]}}
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": os.environ["SHOP_CACHE"]}
}
USE_TZ = True
RELIQ = "reliq.contrib.django.ReliqBackend"
TASKS = {
    "default": {"BACKEND": RELIQ, "OPTIONS": {"retries": 3}},
    "outbox": {"BACKEND": RELIQ, "QUEUES": ["payments"], "OPTIONS": {"outbox": "default", "results": "default"}},
}
