"""No secret that is kept is on a page of the console, in a file that it gives, or in the log of looking at them all."""

import base64
import csv
import io
import logging
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from accounts.models import Totp
from accounts.sealing import seal
from accounts.sign_in import recovery_codes, totp
from billing.models import BillSource, ExportSchedule, Hold, Recipient, Reconciliation, Usage
from gateway.models import StoredFile
from routing.models import Credential, Provider
from tests.console.browser import console, make_rows, make_usage
from tests.console.test_scripts import pages
from tests.matrix.people import make_file
from tests.stage.cast import make_tenant

FORMULAS = (
    "=1+1",
    "+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    '=HYPERLINK("http://evil.example")',
    "|calc",
    "%0A=1",
)


def whole(response: Any) -> str:
    """What was answered, as a page or as a file; a file that is packed reads as what its bytes are."""

    async def read() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    content: bytes = async_to_sync(read)() if response.streaming else response.content
    return content.decode("latin-1")


@pytest.mark.slow
def test_no_secret_leaves_the_console(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tenant = make_tenant("alice")
    rows: Any = make_rows(tenant)
    rows[StoredFile] = make_file(tenant, tenant.key)
    kept: dict[str, Any] = {
        "provider's key": Credential.objects.get(provider__pk=rows[Provider].pk),
        "bucket's key": rows[ExportSchedule],
        "webhook's secret": rows[Recipient],
        "admin key of a bill": rows[BillSource],
    }
    secrets = {name: f"sk-canary-{number}-Zq3f9Kp2LmN8vTq5RsY7wX" for number, name in enumerate(kept)}
    for name, row in kept.items():
        row.put(secrets[name])
        row.save()
    sealed = {f"{name}, sealed": row.sealed for name, row in kept.items()}
    client = console()
    user = tenant.user
    seed = totp.new_seed()
    row = Totp(user=user, last_step=0)
    row.sealed = seal(seed, row.place())
    row.save()
    secrets |= {
        "API key": tenant.secret,
        "seed": seed,
        "session": client.session.session_key or "",
        **{f"recovery code {code[:2]}": code for code in recovery_codes.renew(user)},
    }
    secrets |= sealed | {"seed, sealed": row.sealed, "API key, digest": bytes(tenant.key.digest).hex()}
    secrets["API key, digest in base64"] = base64.b64encode(bytes(tenant.key.digest)).decode()
    secrets["password"] = user.password or "none"
    assert all(len(one) > 8 for one in secrets.values() if one != "none")
    seen = 0
    try:
        for address in pages(rows):
            response = client.get(address)
            told = whole(response) + str(response.headers)
            assert [name for name, secret in secrets.items() if secret in told] == [], address
            seen += tenant.organization.slug in told  # what is no secret is found
    finally:
        rows[Hold].delete()
    assert seen > 60
    assert [name for name, secret in secrets.items() if secret in caplog.text] == []


def test_no_cell_of_a_file_is_a_formula() -> None:
    """Of each file that a route of the console gives as CSV."""
    tenant = make_tenant("mallory")
    rows = make_rows(tenant)
    client, files = console(), 0
    made: Any = rows[Reconciliation]
    for formula in FORMULAS:
        texts: dict[str, Any] = dict.fromkeys(
            ("model", "provider", "end_user", "app", "error", "key_name", "organization_slug"), formula
        )
        make_usage(tenant, **texts, metadata={formula: formula})
        made.lines.create(day=made.first, model=formula, credential=formula, **counts(made))
    try:
        for address in (one for one in pages(rows) if re.search("export|file", one)):
            response = client.get(address)
            if not response.headers.get("Content-Type", "").startswith("text/csv"):
                continue
            files += 1
            for line in csv.reader(io.StringIO(whole(response).removeprefix("\xef\xbb\xbf"))):
                bad = [cell for cell in line if re.match(r"\s*[=+@\t\r]|\s*-(?![\d.]+$)", cell)]
                assert bad == [], address
    finally:
        rows[Hold].delete()
    assert files >= 3
    assert Usage.objects.filter(organization=tenant.organization.pk, model="=1+1").exists()


def counts(made: Reconciliation) -> dict[str, int]:
    """The amounts of a line, all of them nothing."""
    kinds = ("DecimalField", "BigIntegerField")
    return {one.name: 0 for one in made.lines.model._meta.concrete_fields if one.get_internal_type() in kinds}
