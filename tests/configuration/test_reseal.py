"""Changing the sealing key: every credential stays readable, however often and wherever the command is stopped."""

import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from io import StringIO

import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from django.db import transaction

from accounts.models import Organization
from accounts.sealing import CannotOpen, is_current
from billing.models import Recipient
from routing.management.commands.reseal import BATCH, reseal
from routing.models import Credential, Provider

pytestmark = pytest.mark.usefixtures("undone")


@pytest.fixture
def undone() -> Iterator[None]:
    """The command goes through everybody's credentials: all it does is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def new_key() -> str:
    """A sealing key as the environment gives it."""
    return urlsafe_b64encode(os.urandom(32)).decode()


def make_credentials(count: int) -> list[Credential]:
    """Sealed credentials of one provider; the secret of each is its name and some more."""
    slug = f"reseal-{secrets.token_hex(4)}"
    provider = Provider.objects.create(slug=slug, name="Somewhere", base_url="https://llm.example.com")
    credentials = [Credential(provider=provider, name=f"number-{number}") for number in range(count)]
    for credential in credentials:
        credential.put(f"{credential.name}-of-{slug}")
    return Credential.objects.bulk_create(credentials)


def current_and_readable(credentials: list[Credential]) -> tuple[int, int]:
    """How many are sealed under the first key, and how many give their secret."""
    rows = Credential.objects.select_related("provider").filter(pk__in=[row.pk for row in credentials])
    return (
        sum(is_current(row.sealed) for row in rows),
        sum(row.secret() == f"{row.name}-of-{row.provider.slug}" for row in rows),
    )


def test_it_works(settings: LazySettings) -> None:
    credentials = make_credentials(3)
    old = settings.SEALING_KEYS
    settings.SEALING_KEYS = [new_key(), *old]
    assert current_and_readable(credentials) == (0, 3)
    moved, _ = reseal(Credential.objects.filter(pk__in=[row.pk for row in credentials]), lambda count: None)
    assert moved == 3
    assert current_and_readable(credentials) == (3, 3)
    settings.SEALING_KEYS = settings.SEALING_KEYS[:1]  # the old key is gone for good
    assert current_and_readable(credentials) == (3, 3)


def test_a_second_time_changes_nothing(settings: LazySettings) -> None:
    credentials = make_credentials(2)
    ours = Credential.objects.filter(pk__in=[row.pk for row in credentials])
    settings.SEALING_KEYS = [new_key(), *settings.SEALING_KEYS]
    reseal(ours, lambda count: None)
    before = set(ours.values_list("sealed", flat=True))
    assert reseal(ours, lambda count: None) == (0, [])
    assert set(ours.values_list("sealed", flat=True)) == before


def test_it_goes_on_where_it_was_stopped(settings: LazySettings) -> None:
    credentials = make_credentials(2 * BATCH + 10)
    ours = Credential.objects.filter(pk__in=[row.pk for row in credentials])
    settings.SEALING_KEYS = [new_key(), *settings.SEALING_KEYS]

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reseal(ours, stop)
    assert current_and_readable(credentials) == (BATCH, 2 * BATCH + 10)
    steps: list[int] = []
    assert reseal(ours, steps.append) == (BATCH + 10, [])
    assert steps == [BATCH, BATCH, 10]
    assert current_and_readable(credentials) == (2 * BATCH + 10, 2 * BATCH + 10)


def test_what_no_key_opens_is_named_and_left_as_it_is(settings: LazySettings) -> None:
    lost, kept = make_credentials(1)[0], make_credentials(1)[0]
    settings.SEALING_KEYS = [new_key(), *settings.SEALING_KEYS]
    Credential.objects.filter(pk=lost.pk).update(sealed=kept.sealed)  # sealed for another row
    out = StringIO()
    with pytest.raises(CommandError, match=f"cannot be opened .*{lost}"):
        call_command("reseal", stdout=out)
    assert current_and_readable([kept]) == (1, 1)
    lost.refresh_from_db()
    assert lost.sealed == kept.sealed
    with pytest.raises(CannotOpen):
        lost.secret()


def test_an_empty_credential_is_passed_over(settings: LazySettings) -> None:
    (credential,) = make_credentials(1)
    Credential.objects.filter(pk=credential.pk).update(sealed="")
    settings.SEALING_KEYS = [new_key(), *settings.SEALING_KEYS]
    assert reseal(Credential.objects.filter(pk=credential.pk), lambda count: None) == (0, [])
    credential.refresh_from_db()
    assert credential.sealed == ""


def test_the_secrets_of_webhooks_are_resealed_too(settings: LazySettings) -> None:
    organization = Organization.objects.create(slug=f"reseal-{secrets.token_hex(4)}", name="Somebody")
    hook = Recipient(organization=organization, channel="webhook", address="https://hook.example.com/a")
    hook.put("whsec_something")
    hook.save()
    Recipient.objects.create(organization=organization, channel="mail", address="a@example.com")
    settings.SEALING_KEYS = [new_key(), *settings.SEALING_KEYS]
    assert reseal(Recipient.objects.filter(organization=organization), lambda count: None) == (1, [])
    settings.SEALING_KEYS = settings.SEALING_KEYS[:1]
    hook.refresh_from_db()
    assert (hook.secret(), is_current(hook.sealed)) == ("whsec_something", True)
