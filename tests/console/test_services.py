"""Providers of Bedrock, Vertex and Azure in the console: filled in, checked as they are typed, and kept secret."""

import html
import secrets
from typing import Any

import pytest
from django.urls import reverse

from accounts.sealing import seal
from routing.models import Credential, Provider, credential_place
from routing.starter.vendors import SERVICES
from tests.console.browser import console, filled, submit
from tests.stage.accounts import AWS_ID, AWS_SECRET, document

ADD = reverse("admin:routing_provider_add")
AWS_KEY = f"{AWS_ID}:{AWS_SECRET}"
BEDROCK = {
    "protocol": "anthropic_messages",
    "variant": "invoke",
    "base_url": "https://bedrock-runtime.us-east-1.amazonaws.com",
    "auth_style": "sigv4",
    "region": "us-east-1",
    "credentials__0__secret": AWS_KEY,
}
VERTEX = {
    "protocol": "google_gemini",
    "base_url": "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5/publishers/google",
    "auth_style": "service-account",
    "credentials__0__secret": document(),
}


def add(**fields: Any) -> tuple[str, Any]:
    """The slug of what was sent, and the answer."""
    slug = f"service-{secrets.token_hex(4)}"
    usual = {"slug": slug, "name": "S", "credentials__TOTAL_FORMS": "1", "credentials__0__name": "default"}
    return slug, submit(console(), ADD, "provider_form", **{**usual, "credentials__0__active": "on", **fields})


@pytest.mark.parametrize(
    ("fields", "secret", "hint"),
    [
        (BEDROCK, AWS_KEY, "0042"),
        # An input of one line takes the ends of lines away.
        ({**VERTEX, "credentials__0__secret": document().replace("\n", "")}, document().replace("\n", ""), "…"),
    ],
    ids=["Bedrock", "Vertex"],
)
def test_one_is_made_with_its_key(fields: dict[str, Any], secret: str, hint: str) -> None:
    slug, response = add(**fields)
    assert response.status_code == 302
    row = Credential.objects.select_related("provider").get(provider__slug=slug)
    assert (row.secret(), row.hint) == (secret, hint)
    page = console().get(reverse("admin:routing_provider_change", args=[row.provider_id])).content.decode()
    assert AWS_SECRET not in page and "PRIVATE KEY" not in page


@pytest.mark.parametrize(
    ("fields", "changed", "told"),
    [
        (BEDROCK, {"region": ""}, "AWS's signatures are for a region: write it like us-east-1."),
        (BEDROCK, {"protocol": "openai_chat"}, "This is a variant of Anthropic Messages, which is not the protocol."),
        (BEDROCK, {"base_url": f"{BEDROCK['base_url']}/model"}, "For this variant write it like "),
        (BEDROCK, {"credentials__0__secret": AWS_SECRET}, "An AWS key is ID:SECRET, or"),
        (VERTEX, {"credentials__0__secret": "sk-1"}, "A service account's key is the whole JSON document of it"),
        (VERTEX, {"credentials__0__secret": document(client_email="")}, "key has no client_email."),
        (VERTEX, {"auth_style": "bearer"}, "A secret is printable ASCII without spaces."),
        (VERTEX, {"protocol": "openai_chat", "variant": "deployments"}, "This variant needs one, such as 2024-10-21."),
    ],
    ids=[
        *("no region", "another protocol", "another address", "half an AWS key", "no document", "a field is missing"),
        *("a document for a word", "no API version"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_told_when_it_is_saved(fields: dict[str, Any], changed: dict[str, str], told: str) -> None:
    slug, response = add(**{**fields, **changed})
    assert response.status_code == 200
    page = html.unescape(response.content.decode())
    assert told in page
    assert AWS_SECRET not in page and "PRIVATE KEY" not in page
    assert not Provider.objects.filter(slug=slug).exists()


def test_a_stored_secret_that_no_longer_fits_and_a_token_endpoint_out_of_reach_are_told() -> None:
    slug, response = add(**{**VERTEX, "credentials__0__secret": document(token_uri="http://10.0.0.1/token")})
    provider = Provider.objects.get(slug=slug)
    change = reverse("admin:routing_provider_change", args=[provider.pk])
    said = html.unescape(console().get(response.url).content.decode())
    client = console()
    said = html.unescape(client.post(change, dict(filled(client.get(change).content.decode(), "provider_form")),
                                     follow=True).content.decode())  # fmt: skip
    assert "The token endpoint of default: http://10.0.0.1/token will not be dialled: only https is dialled" in said
    credential = provider.credentials.get()
    credential.sealed = seal(AWS_KEY, credential_place(credential.id, provider.base_url))
    credential.save()
    said = html.unescape(client.post(change, dict(filled(client.get(change).content.decode(), "provider_form")),
                                     follow=True).content.decode())  # fmt: skip
    assert "The stored secret of default does not go with the auth style. A service account's key is" in said
    assert AWS_SECRET not in said


def test_a_service_is_filled_in_but_for_what_is_the_customer_s() -> None:
    client = console()
    page = client.get(ADD).content.decode()
    for service in SERVICES:
        assert f'href="?vendor={service.slug}"' in page
        fields = filled(client.get(ADD, {"vendor": service.slug}).content.decode(), "provider_form")
        assert [fields[name] for name in ("protocol", "variant", "auth_style", "api_version", "base_url")] == [
            [service.protocol], [service.variant], [service.auth_style], [service.api_version], [service.base_url]
        ]  # fmt: skip
        slug, response = add(base_url=service.base_url)
        assert response.status_code == 200 and not Provider.objects.filter(slug=slug).exists()
