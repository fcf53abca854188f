"""Fixtures for all tests. The database is made once and committed to; every test lives in organizations of its own."""

import os
from collections.abc import Iterator

import pytest
from django.conf import LazySettings
from django.conf import settings as django_settings
from django.db import connection
from django.test import override_settings
from hypothesis import HealthCheck, settings

from tests.simulated.process import SimulatedProvider
from tests.simulated.process import start as start_simulated
from tests.stage.backbone import migrating
from tests.stage.books import copied
from tests.stage.cast import Tenant, make_tenant
from tests.stage.plugin import WORKER
from tests.stage.product import Gateway, running

# How fast examples are made says more of the machine than of us.
settings.register_profile("reduced", max_examples=20, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("whole", max_examples=400, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("PROPERTIES", "reduced"))


@pytest.fixture(scope="session", autouse=True)
def database() -> Iterator[None]:
    """A freshly migrated database, open to every test: the product's processes must see what a test commits."""
    name = connection.settings_dict["NAME"]
    if WORKER:
        connection.settings_dict["TEST"]["NAME"] = f"test_{name}_{WORKER}"
    with migrating():
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    with copied():
        yield
        connection.close()
    connection.creation.destroy_test_db(name, verbosity=0)


@pytest.fixture(name="settings")
def these_settings() -> Iterator[LazySettings]:
    """Django's settings; what a test sets there holds to its end."""
    with override_settings():
        yield django_settings


@pytest.fixture(scope="session")
def simulated() -> Iterator[SimulatedProvider]:
    """The simulated provider, one for all tests; a test tells its requests apart by its own model's name."""
    with start_simulated() as provider:
        yield provider


@pytest.fixture(autouse=True)
def nobody_waits(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test has left waiting at the simulated provider, for a client that is gone, goes on: others count."""
    yield
    if "simulated" in request.fixturenames:
        request.getfixturevalue("simulated").release()


@pytest.fixture(scope="session")
def gateway(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway process, one for all tests that do not hurt it; it may dial the simulated provider alone."""
    with running(tmp_path_factory.mktemp("gateway"), EGRESS_ALLOW=simulated.url) as (process,):
        yield process


@pytest.fixture
def alice() -> Tenant:
    """Alice's organization, fresh."""
    return make_tenant("alice")


@pytest.fixture
def charlie() -> Tenant:
    """Charlie's organization, which must see nothing of Alice's."""
    return make_tenant("charlie")
