"""The console in the reader's language: every word of it is in the Chinese catalogue, and pages are whole in it."""

import gettext
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import override_settings
from django.urls import reverse

from billing.models import Hold
from tests.console.browser import PAGES, Rows, addresses, console, make_rows
from tests.stage.cast import make_tenant

CATALOGUE = Path(settings.BASE_DIR) / "gateway" / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
PLACES = re.compile(r"%\(\w+\)[a-z]|%[sd%]|\{\w*\}|</?\w+")
TEXT = r'((?:"(?:[^"\\]|\\.)*"\n?)+)'
ENTRY = re.compile(rf"^(?:msgctxt {TEXT})?msgid {TEXT}(?:msgid_plural {TEXT})?msgstr(?:\[0\])? {TEXT}", re.M)


@pytest.fixture(scope="module")
def rows(database: None) -> Iterator[Rows]:
    """A row of every page."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


def catalogue() -> dict[str, str]:
    """What the compiled catalogue says, by what is said in English."""
    with CATALOGUE.with_suffix(".mo").open("rb") as file:
        kept = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {said if isinstance(said, str) else said[0]: words for said, words in kept.items() if said}


def test_no_message_is_empty_or_fuzzy() -> None:
    text = CATALOGUE.read_text()
    assert "fuzzy" not in text and "#~" not in text
    assert re.findall(r'^msgid (?!"")(.*)\n(?:msgid_plural .*\n)?msgstr(?:\[0\])? ""$', text, re.M) == []
    assert len(catalogue()) > 1000


def test_the_compiled_catalogue_says_what_is_written() -> None:
    written = {}
    for context, said, _plural, words in ENTRY.findall(CATALOGUE.read_text()):
        key = text_of(said)
        written[f"{text_of(context)}\x04{key}" if context else key] = text_of(words)
    del written[""]
    assert written == catalogue()


def text_of(quoted: str) -> str:
    """What strings beside each other say, as a catalogue writes them."""
    return "".join(json.loads(one) for one in re.findall(r'"(?:[^"\\]|\\.)*"', quoted))


def test_what_is_put_into_messages_is_in_their_translations() -> None:
    odd = {said: words for said, words in catalogue().items() if places(said) != places(words)}
    assert odd == {}


def places(words: str) -> set[str]:
    """What is put into a message, and its tags."""
    return set(PLACES.findall(words))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("xgettext"), reason="There are no tools of gettext here.")
def test_every_word_of_the_code_is_in_the_catalogue(tmp_path: Path) -> None:
    place = tmp_path / "zh_Hans" / "LC_MESSAGES"
    place.mkdir(parents=True)
    shutil.copy(CATALOGUE, place)
    with override_settings(LOCALE_PATHS=[tmp_path]):
        call_command("makemessages", verbosity=0)
    assert (place / "django.po").read_text() == CATALOGUE.read_text()


@pytest.mark.slow
def test_every_page_is_there_in_chinese(rows: Rows) -> None:
    client = console(HTTP_ACCEPT_LANGUAGE="zh-hans")
    pages = [address for model in PAGES for address in addresses(model, rows[model])]
    for address in (*pages, *map(reverse, ("admin:index", "spend", "end_users", "health_board", "catalog", "search"))):
        page = client.get(address)
        html = page.content.decode()
        assert page.status_code == 200 and '<html lang="zh-hans"' in html and "生成记录" in html, address


def test_a_language_is_chosen_and_kept() -> None:
    client = console()
    assert "Generations" in client.get(reverse("admin:index")).content.decode()
    chosen = client.post(reverse("set_language"), {"language": "zh-hans", "next": reverse("admin:index")})
    assert (chosen.status_code, chosen["Location"]) == (302, reverse("admin:index"))
    assert "生成记录" in client.get(reverse("admin:index")).content.decode()
    elsewhere = client.post(reverse("set_language"), {"language": "en", "next": "https://evil.example/"})
    assert not elsewhere["Location"].startswith("https:")
    assert "Generations" in client.get(reverse("admin:index")).content.decode()
