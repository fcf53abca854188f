"""Fixtures for all tests. The database is made once and committed to; every test lives in organizations of its own."""

from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker


@pytest.fixture(scope="session", autouse=True)
def database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A migrated database, open to every test: the product's processes must see what a test commits."""
    with django_db_blocker.unblock():
        yield
