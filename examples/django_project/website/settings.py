"""The least a Django project needs, and two settings of the scheduler's."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1]

SECRET_KEY = "only-an-example"  # noqa: S105 - an example signs nothing
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "website.urls"
INSTALLED_APPS = ["reminders"]
USE_TZ = True

HORAE_STORE = os.environ.get("HORAE_STORE", f"sqlite:///{FOLDER / 'horae.db'}")
HORAE_IN_WEB = os.environ.get("HORAE_IN_WEB") == "1"
"""Whether web processes run jobs too. Leave it off where `manage.py worker` does."""
