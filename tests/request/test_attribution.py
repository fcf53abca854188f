"""The application a request names: whatever a header holds can be stored and shown."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.request.attribution import LONGEST, calling_app


def test_it_is_the_title_or_else_the_address() -> None:
    assert calling_app({b"x-title": b" App ", b"http-referer": b"https://a"}) == "App"
    assert calling_app({b"x-title": b"", b"http-referer": b"https://a/b?c=d"}) == "https://a/b"
    assert calling_app({b"referer": b"https://a/b"}) is None
    assert calling_app({b"x-title": b"x" * 999}) == "x" * LONGEST
    assert calling_app({b"x-title": "Ü".encode()}) == calling_app({b"x-title": "Ü".encode("latin-1")}) == "Ü"


@given(st.binary(), st.binary())
def test_whatever_is_sent_can_be_stored(title: bytes, referer: bytes) -> None:
    app = calling_app({b"x-title": title, b"http-referer": referer})
    assert app is None or (app.isprintable() and app.strip() == app and 0 < len(app) <= LONGEST)
    (app or "").encode()
