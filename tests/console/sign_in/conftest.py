"""Fixtures of signing in."""

from collections.abc import Iterator

import pytest
from django.conf import LazySettings
from django.test import override_settings

from accounts.models import LoginAttempts
from routing.outside import outside
from tests.stage.identity_provider import IdentityProvider, identity_provider


@pytest.fixture(scope="module", autouse=True)
def quick_hashes() -> Iterator[None]:
    """What a password costs is another test's."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(autouse=True)
def nobody_has_tried(database: None) -> None:
    """All of these come from one address."""
    LoginAttempts.objects.all().delete()


@pytest.fixture(scope="session")
def running_provider() -> Iterator[IdentityProvider]:
    """One for all of these."""
    with identity_provider() as found:
        yield found


@pytest.fixture
def idp(running_provider: IdentityProvider, settings: LazySettings) -> Iterator[IdentityProvider]:
    """The provider of the settings."""
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = running_provider.url, "meter/line"
    settings.OIDC_CLIENT_SECRET = "s3cret: of ours"
    settings.EGRESS_ALLOW = [running_provider.url]
    outside.cache_clear()
    yield running_provider
    running_provider.says = lambda path, body: body
    outside.cache_clear()
