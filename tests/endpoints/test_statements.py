"""Statements and credit notes over the API: for an export key, of its own organization."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from billing.documents import pdf
from billing.issuing import credit_note, issue
from tests.endpoints.test_exports import key
from tests.stage.books import OWED, stated
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running
from tests.stage.speech import error

PATH = "/v1/exports/statements"


def get(gateway: Gateway, secret: str, number: str = "", **asked: Any) -> httpx.Response:
    path = f"{PATH}/{number}" if number else PATH
    return gateway.client.get(path, params=asked, headers={"Authorization": f"Bearer {secret}"})


def test_a_statement_and_its_credit_note(gateway: Gateway, alice: Tenant) -> None:
    of = stated(alice)
    note = issue(credit_note(str(of), "0.5", "An <i>outage</i>.", "finance"))
    secret = key(gateway, alice, "export")
    listed = get(gateway, secret).json()
    assert ([one["number"] for one in listed["data"]], listed["has_more"]) == ([str(note), str(of)], False)
    (first, second) = listed["data"]
    assert second == {
        "object": "statement", "number": str(of), "kind": "statement", "refers_to": None, "issuer": "Meterline",
        "organization": alice.organization.slug, "name": "Alice & <Sons>", "month": f"{of.month:%Y-%m}",
        "currency": "USD", "total": float(OWED), "reason": "", "issued_at": int(of.issued_at.timestamp()),
        "lines": [
            {
                "model": "lab/<b>model", "requests": 2, "prompt_tokens": 2000, "completion_tokens": 1000, "images": 3,
                "seconds": 1, "web_searches": 0, "charge": 2.500000000001,
            },
            {"note": "Of earlier months, settled after they were closed", "charge": 0.5},
        ],
    }  # fmt: skip
    assert (first["kind"], first["refers_to"], first["total"]) == ("credit", str(of), -0.5)
    assert '"total":3.000000000001' in get(gateway, secret, str(of)).text.replace(" ", "")
    assert get(gateway, secret, str(of)).json() == second and get(gateway, secret, str(note)).json() == first
    # A page at a time.
    assert [one["number"] for one in get(gateway, secret, limit="1").json()["data"]] == [str(note)]
    assert [one["number"] for one in get(gateway, secret, before=str(note)).json()["data"]] == [str(of)]

    html = get(gateway, secret, str(of), format="html")
    assert html.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in html.headers["content-security-policy"]
    assert "vendor" not in html.text and "lab/&lt;b&gt;model" in html.text and "Alice &amp; &lt;Sons&gt;" in html.text
    assert "of it 3 images, 1 second" in html.text and "3.000000000001 USD" in html.text
    assert f"Statement {of}" in get(gateway, secret, str(note), format="html").text
    for document in (of, note):
        answer = get(gateway, secret, str(document), format="pdf")
        assert (answer.headers["content-type"], answer.content) == ("application/pdf", pdf(document))
        assert answer.headers["content-disposition"] == f'attachment; filename="{document}.pdf"'
        assert "no-store" in answer.headers["cache-control"]


def test_who_has_no_memory_left_is_made_no_document(tmp_path: Path, alice: Tenant) -> None:
    of = stated(alice)
    with running(tmp_path, MEMORY_BYTES="1048576") as (small,):
        secret = key(small, alice, "export")
        for format in ("pdf", "html"):
            refused = get(small, secret, str(of), format=format)
            assert (refused.status_code, error(refused)["code"]) == (503, "out_of_memory")
        assert get(small, secret, str(of)).status_code == 200
        assert "meterline_buffered_bytes 0.0" in small.client.get("/metrics").text


def test_another_ones_is_not_there(gateway: Gateway, alice: Tenant, charlie: Tenant) -> None:
    of = stated(alice)
    theirs = key(gateway, charlie, "export")
    assert get(gateway, theirs).json() == {"object": "list", "data": [], "has_more": False}
    answers = [
        get(gateway, theirs, number, format=format)
        for number in (str(of), "9999-99999", "2026-1", "x", "2026-00001%0a", "%D9%A2026-00001", "1" * 300)
        for format in ("json", "html", "pdf")
    ]
    assert {(answer.status_code, error(answer)["code"]) for answer in answers} == {(404, "statement_not_found")}
    assert len({answer.text.replace(answer.headers["x-request-id"], "") for answer in answers}) == 1


@pytest.mark.parametrize(
    ("asked", "param"), [({"limit": "51"}, "limit"), ({"limit": "0"}, "limit"), ({"before": "1"}, "before")]
)
def test_what_makes_no_sense_is_refused(gateway: Gateway, alice: Tenant, asked: dict[str, str], param: str) -> None:
    answer = get(gateway, key(gateway, alice, "export"), **asked)
    assert (answer.status_code, error(answer)["param"]) == (400, param)


def test_it_is_for_export_keys(gateway: Gateway, alice: Tenant) -> None:
    of = stated(alice)
    for scope in ("inference", "management"):
        secret = key(gateway, alice, scope)
        assert {get(gateway, secret).status_code, get(gateway, secret, str(of)).status_code} == {403}
    assert get(gateway, key(gateway, alice, "export"), str(of), format="xml").status_code == 400
