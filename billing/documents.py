"""A statement as PDF, for whom it is issued to. The same statement is the same bytes.

Providers are the operator's affair and not named: of a model there is one line. Its fonts are those that every reader
has, which know Latin letters alone; a question mark stands for any other.
"""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from accounts.exact import plain
from billing.models import DocumentKind, Statement

if TYPE_CHECKING:
    from fpdf import FPDF

WIDTHS = (70, 22, 30, 30, 38)  # millimetres
TITLES = ("Model", "Requests", "Prompt tokens", "Answer tokens", "Charge")


def tenants_lines(document: Statement) -> list[tuple[str, str, str, str, str]]:
    """The lines as a tenant sees them: one a model, then the notes."""
    models: dict[str, list[Any]] = {}
    notes: list[tuple[str, str, str, str, str]] = []
    for line in document.lines:
        charge = Decimal(line["charge"])
        if "note" in line:
            notes.append((line["note"], "", "", "", plain(charge)))
            continue
        counts = [line[name] for name in ("requests", "prompt_tokens", "completion_tokens")]
        before = models.get(line["model"], [0, 0, 0, Decimal(0)])
        models[line["model"]] = [one + other for one, other in zip(before, [*counts, charge], strict=True)]
    rows = [
        (name, f"{requests:,}", f"{prompt:,}", f"{completion:,}", plain(charge))
        for name, (requests, prompt, completion, charge) in models.items()
    ]
    return rows + notes


def pdf(document: Statement) -> bytes:
    """The document."""
    from fpdf import FPDF  # a second's work, for who makes a document alone

    page = FPDF(format="A4")
    page.set_creation_date(document.issued_at)
    page.set_title(_latin(f"{document.get_kind_display()} {document}"))
    page.set_auto_page_break(True, margin=20)
    page.add_page()
    page.set_font("Helvetica", "B", 16)
    page.cell(0, 10, _latin(f"{document.get_kind_display()} {document}"), new_x="LMARGIN", new_y="NEXT")
    page.set_font("Helvetica", size=10)
    for name, value in _facts(document):
        page.cell(35, 6, name)
        page.multi_cell(0, 6, _latin(value), new_x="LMARGIN", new_y="NEXT")
    page.ln(4)
    _row(page, TITLES, "B")
    for line in tenants_lines(document):
        _row(page, line, "")
    _row(page, ("Total", "", "", "", f"{plain(document.total)} {document.currency}"), "B")
    return bytes(page.output())


def _facts(document: Statement) -> list[tuple[str, str]]:
    facts = [
        ("Issued by", document.issuer),
        ("Issued", f"{document.issued_at:%Y-%m-%d}"),
        ("For", f"{document.name} ({document.slug})"),
        ("Month (UTC)", f"{document.month:%Y-%m}"),
    ]
    if document.kind == DocumentKind.CREDIT:
        facts.append(("Refers to", f"Statement {document.refers_to}"))
    return facts


def _row(page: "FPDF", cells: tuple[str, ...], style: str) -> None:
    page.set_font("Helvetica", style, 9)
    text = _latin(cells[0])
    if any(cells[1:4]) or style:
        while page.get_string_width(text) > WIDTHS[0] - 2:
            text = text[:-4] + "..."
        page.cell(WIDTHS[0], 6, text, border="B")
        for width, cell in zip(WIDTHS[1:], cells[1:], strict=True):
            page.cell(width, 6, cell, border="B", align="R")
        page.ln()
    else:  # a note has the room of the counts it has not
        width = sum(WIDTHS[:4])
        page.multi_cell(width, 6, text, border="B", align="L", new_x="LMARGIN", new_y="NEXT")
        page.set_xy(page.l_margin + width, page.get_y() - 6)
        page.cell(WIDTHS[4], 6, cells[4], border="B", align="R", new_x="LMARGIN", new_y="NEXT")


def _latin(text: str) -> str:
    return (
        "".join(letter if letter.isprintable() else "?" for letter in text)
        .encode("latin-1", "replace")
        .decode("latin-1")
    )
