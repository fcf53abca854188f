"""A statement as PDF and as a page, for whom it is issued to. The same statement is the same bytes.

Providers are the operator's affair and not named: of a model there is one line. The PDF's fonts are those that every
reader has, which know Latin letters alone; a question mark stands for any other.
"""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.template.loader import render_to_string
from django.utils.translation import ngettext, override

from accounts.exact import plain
from billing.models import DocumentKind, Statement

if TYPE_CHECKING:
    from fpdf import FPDF

WIDTHS = (70, 22, 30, 30, 38)  # millimetres
_COUNTS = ("requests", "prompt_tokens", "completion_tokens", "images", "seconds", "web_searches")
TITLES = ("Model", "Requests", "Prompt tokens", "Answer tokens", "Charge")


def tenants_lines(document: Statement) -> list[tuple[str, str, str, str, str]]:
    """The lines as a tenant sees them: one a model, then the notes."""
    rows: list[tuple[str, str, str, str, str]] = []
    for line in by_model(document):
        charge = plain(line["charge"])
        if "note" in line:
            rows.append((line["note"], "", "", "", charge))
            continue
        counts = [f"{line[name]:,}" for name in ("requests", "prompt_tokens", "completion_tokens")]
        rows.append((line["model"], counts[0], counts[1], counts[2], charge))
        if words := counted(line["images"], line["seconds"], line["web_searches"]):
            rows.append((f"of it {words}", "", "", "", ""))
    return rows


def by_model(document: Statement) -> list[dict[str, Any]]:
    """The same: `model`, the counts and `charge` each, then `note` and `charge`. Charges are decimals."""
    models: dict[str, dict[str, Any]] = {}
    notes: list[dict[str, Any]] = []
    for line in document.lines:
        charge = Decimal(line["charge"])
        if "note" in line:
            notes.append({"note": line["note"], "charge": charge})
            continue
        made = models.setdefault(line["model"], {"model": line["model"], **dict.fromkeys(_COUNTS, 0), "charge": 0})
        for name in _COUNTS:
            made[name] += line.get(name, 0)
        made["charge"] += charge
    return [*models.values(), *notes]


def counted(images: int, seconds: int, searches: int) -> str:
    """What was counted beside tokens, in words; "": nothing."""
    counts = (
        (images, ngettext("%(count)s image", "%(count)s images", images)),
        (seconds, ngettext("%(count)s second", "%(count)s seconds", seconds)),
        (searches, ngettext("%(count)s web search", "%(count)s web searches", searches)),
    )
    return ", ".join(words % {"count": f"{count:,}"} for count, words in counts if count)


def page(document: Statement) -> str:
    """The document as a page of its own, which loads nothing; in English, whoever asks for it."""
    with override("en"):
        return _page(document)


def _page(document: Statement) -> str:
    told = {
        "document": document,
        "facts": _facts(document),
        "titles": TITLES,
        "lines": tenants_lines(document),
        "total": plain(document.total),
    }
    return render_to_string("statement.html", told)


def pdf(document: Statement) -> bytes:
    """The document; in English, whoever asks for it."""
    with override("en"):
        return _pdf(document)


def _pdf(document: Statement) -> bytes:
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
