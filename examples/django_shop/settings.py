"""Settings of a Django project with one application, `shop`."""

import os

SECRET_KEY = "only for this example"
INSTALLED_APPS = ["django_tasks"]  # not needed in Django 6
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DB", ":memory:")}}
USE_TZ = True
TASKS = {"default": {"BACKEND": "reliq.contrib.django.ReliqBackend", "OPTIONS": {"retries": 3}}}
