"""A provider's secret goes out as its row says, in a header, or not at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.signing import headers
from routing import models
from routing.provider_secret import AuthStyle, UnusableSecret

WORDS = [AuthStyle.BEARER, AuthStyle.API_KEY, AuthStyle.X_API_KEY, AuthStyle.X_GOOG_API_KEY]


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("bearer", [("Authorization", "Bearer sk-1")]),
        ("api-key", [("api-key", "sk-1")]),
        ("x-api-key", [("x-api-key", "sk-1")]),
        ("x-goog-api-key", [("x-goog-api-key", "sk-1")]),
        ("none", []),
    ],
)
def test_each_style_has_its_header(style: str, expected: list[tuple[str, str]]) -> None:
    assert headers(style, "sk-1") == expected


def test_every_style_of_the_column_is_known() -> None:
    assert [*AuthStyle] == models.AuthStyle.values
    assert len({headers(style, "s")[0][0] for style in WORDS}) == len(WORDS)
    assert {*AuthStyle} - {*WORDS} == {AuthStyle.NONE, AuthStyle.SIGV4, AuthStyle.SERVICE_ACCOUNT}


@pytest.mark.parametrize("style", ["", "Bearer", "basic", "bearer ", "x_api_key", "sigv4", "service-account"])
def test_an_unknown_style_is_refused(style: str) -> None:
    with pytest.raises(ValueError, match="AuthStyle"):
        headers(style, "sk-1")


@pytest.mark.parametrize(
    "secret",
    [
        "",
        " ",
        "sk 1",
        "sk-1\n",
        "sk-1\r\nX-Evil: 1",
        "sk\x00",
        "sk\x7f",
        "sk\tx",
        "sk\u00e9",
        "sk\u200b",
        "\uff53\uff4b",
    ],
)
@pytest.mark.parametrize("style", WORDS)
def test_a_secret_that_cannot_stand_in_a_header_is_refused_unnamed(style: str, secret: str) -> None:
    with pytest.raises(UnusableSecret) as caught:
        headers(style, secret)
    assert "sk" not in str(caught.value)


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1))
def test_every_visible_ascii_secret_is_sent_as_it_is(secret: str) -> None:
    assert headers("bearer", secret) == [("Authorization", "Bearer " + secret)]
    assert headers("x-api-key", secret) == [("x-api-key", secret)]
