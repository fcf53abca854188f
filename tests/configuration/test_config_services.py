"""Providers of Bedrock, Vertex and Azure in a file: applied, exported, and told at once where they cannot work."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounts.sealing import CannotOpen
from gateway.configuration.export import export
from routing.models import Credential, Provider
from tests.configuration.desk import ROOT, Desk, empty_everything, undone
from tests.stage.accounts import AWS_ID, AWS_SECRET, document

AWS_KEY = f"{AWS_ID}:{AWS_SECRET}"
BEDROCK = """
    providers:
      NAME:
        protocol: anthropic_messages
        variant: invoke
        base_url: https://bedrock-runtime.us-east-1.amazonaws.com
        auth_style: sigv4
        region: us-east-1
        credentials: {default: {secret: {env: SECRET}}}
"""
VERTEX = """
    providers:
      NAME:
        protocol: anthropic_messages
        variant: raw_predict
        base_url: https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5
        auth_style: service-account
        credentials: {default: {secret: {env: SECRET}}}
"""
AZURE = """
    providers:
      NAME:
        variant: deployments
        base_url: https://acme.openai.azure.com/openai
        api_version: "2024-10-21"
        auth_style: api-key
        credentials: {default: {secret: {env: SECRET}}}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with undone():
        yield Desk(tmp_path)


def test_the_documented_ones_are_applied_exported_and_applied_again(desk: Desk) -> None:
    (example,) = re.findall(
        r"#### Bedrock, Vertex, Azure\n\n```yaml\n(.*?)```", (ROOT / "docs/configuration.md").read_text(), re.DOTALL
    )
    (desk.folder / "vertex.json").write_text(document() + "\n")
    example = example.replace("/run/secrets/vertex.json", "vertex.json")
    empty_everything()
    desk.apply(example, AWS_KEY=AWS_KEY, AZURE_KEY="azure-key-0123456789")
    rows = {row.slug: row for row in Provider.objects.all()}
    assert {slug: (row.variant, row.auth_style, row.region, row.api_version) for slug, row in rows.items()} == {
        "azure": ("deployments", "api-key", "", "2024-10-21"),
        "bedrock": ("invoke", "sigv4", "us-east-1", ""),
        "vertex-anthropic": ("raw_predict", "service-account", "", ""),
        "vertex-google": ("", "service-account", "", ""),
    }
    held = {row.provider.slug: (row.secret(), row.hint) for row in Credential.objects.select_related("provider")}
    assert held == {
        "azure": ("azure-key-0123456789", "6789"),
        "bedrock": (AWS_KEY, "0042"),
        "vertex-anthropic": (document(), "…"),
        "vertex-google": (document(), "…"),
    }
    written = export()
    assert "PRIVATE KEY" not in written and AWS_SECRET not in written
    again = {
        "CREDENTIAL_AZURE_DEFAULT": "azure-key-0123456789",
        "CREDENTIAL_BEDROCK_DEFAULT": AWS_KEY,
        "CREDENTIAL_VERTEX_ANTHROPIC_DEFAULT": document(),
        "CREDENTIAL_VERTEX_GOOGLE_DEFAULT": document(),
    }
    assert desk.lines(written, **again) == []
    empty_everything()
    desk.apply(written, **again)
    assert export() == written


@pytest.mark.parametrize(
    ("file", "change", "secret", "told"),
    [
        (BEDROCK, ("region: us-east-1", "region: ''"), AWS_KEY, "region: AWS's signatures are for a region"),
        (BEDROCK, ("region: us-east-1", "region: US East"), AWS_KEY, "region: Write it like us-east-1."),
        (BEDROCK, ("amazonaws.com", "amazonaws.com/model"), AWS_KEY, "base_url: For this variant write it like "),
        (BEDROCK, ("amazonaws.com", "amazonaws.com/v1"), AWS_KEY, "base_url: For this variant write it like "),
        (BEDROCK, ("anthropic_messages", "openai_chat"), AWS_KEY, "variant: This is a variant of Anthropic Messages,"),
        (BEDROCK, ("", ""), AWS_SECRET, "credentials.default.secret: An AWS key is ID:SECRET, or"),
        (VERTEX, ("/projects/p/locations/us-east5", ""), "", "base_url: For this variant write it like "),
        (VERTEX, ("us-east5\n", "us-east5/publishers/anthropic\n"), "", "base_url: For this variant write it like "),
        (VERTEX, ("", ""), "sk-1", "secret: A service account's key is the whole JSON document of it"),
        (VERTEX, ("", ""), document(private_key="x"), "secret: The private_key of the service account's key is no RSA"),
        (AZURE, ("\"2024-10-21\"", "''"), "azure-key", "api_version: This variant needs one, such as 2024-10-21."),
        (AZURE, ("\"2024-10-21\"", "2024-10-21"), "azure-key", "api_version: expected text"),
        (AZURE, ("\"2024-10-21\"", "a&key=b"), "azure-key", "api_version: Letters, digits, dots, dashes"),
        (AZURE, ("/openai", "/openai/v1"), "azure-key", "base_url: For this variant write it like "),
    ],
    ids=[
        *("no region", "no such region", "a path of it", "another path", "another protocol", "half an AWS key"),
        *("no project", "a publisher", "no document", "no private key"),
        *("no version", "a date", "more than a version", "Azure's other API"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_and_told(
    desk: Desk, file: str, change: tuple[str, str], secret: str, told: str
) -> None:
    said = desk.refused(file.replace(*change) if change[0] else file, SECRET=secret or document())
    assert f"providers.NAME.{told}" in said or f"providers.NAME.credentials.default.{told}" in said
    assert AWS_SECRET not in said and "BEGIN" not in said
    assert not Provider.objects.filter(slug=desk.slug).exists()


def test_a_stored_secret_that_does_not_go_with_a_new_style_is_told(desk: Desk) -> None:
    desk.apply(BEDROCK, SECRET=AWS_KEY)
    changed = "providers: {NAME: {auth_style: service-account}}"
    said = desk.refused(changed)
    assert "providers.NAME.auth_style: credential default does not go with it: A service account's key is" in said
    desk.apply("providers: {NAME: {credentials: {default: {active: false}}}}")
    assert desk.lines(changed) == ["~ provider NAME: auth_style sigv4 -> service-account"]


def test_a_token_endpoint_that_is_not_dialled_is_told(desk: Desk) -> None:
    difference = desk.apply(VERTEX, SECRET=document(token_uri="http://10.0.0.1/token"))
    (note,) = difference.notes
    assert note.replace(desk.slug, "NAME").startswith(
        "credential NAME/default: http://10.0.0.1/token will not be dialled: only https is dialled"
    )
    assert desk.apply(VERTEX, SECRET=document()).notes == []


def test_a_secret_stays_bound_to_its_address(desk: Desk) -> None:
    desk.apply(BEDROCK, SECRET=AWS_KEY)
    desk.apply("providers: {NAME: {base_url: 'https://bedrock-runtime.eu-west-1.amazonaws.com', region: eu-west-1}}")
    row = Credential.objects.select_related("provider").get(provider__slug=desk.slug)
    assert row.sealed == ""
    with pytest.raises(CannotOpen):
        row.secret()
