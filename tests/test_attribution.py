"""The application a request names: whatever a header holds can be stored and shown."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.attribution import LONGEST, calling_app


def test_it_is_the_title_or_else_the_address() -> None:
    assert calling_app({"HTTP_X_TITLE": " App ", "HTTP_HTTP_REFERER": "https://a"}) == "App"
    assert calling_app({"HTTP_X_TITLE": "", "HTTP_HTTP_REFERER": "https://a/b?c=d"}) == "https://a/b"
    assert calling_app({"HTTP_REFERER": "https://a/b"}) is None
    assert calling_app({"HTTP_X_TITLE": "x" * 999}) == "x" * LONGEST


@given(st.text(), st.text())
def test_whatever_is_sent_can_be_stored(title: str, referer: str) -> None:
    app = calling_app({"HTTP_X_TITLE": title, "HTTP_HTTP_REFERER": referer})
    assert app is None or (app.isprintable() and app.strip() == app and 0 < len(app) <= LONGEST)
    (app or "").encode()
