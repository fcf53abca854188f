"""The veil over a provider's secrets: every form of them, cut anywhere, and nothing else."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.veil import END, Veiled, VeiledEvents, veil_over
from gateway.wire.sse import Event, EventReader
from routing.provider_secret import hidden as hidden_of
from tests.stage.accounts import AWS_ID, AWS_SECRET, AWS_TOKEN, document, pem
from tests.stage.accounts import RSA as PRIVATE

ESCAPES = ("\\u{:04x}", "%{:02X}", "&#{};", "&#x{:x};", "\\x{:02x}")
VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=80)


def forms(secret: str) -> list[str]:
    """What encoders make of it."""
    raw = secret.encode()
    return [
        secret,
        f"Bearer {secret}",
        json.dumps(secret),
        json.dumps(json.dumps(secret)),
        json.dumps(secret).replace("/", "\\/"),
        quote(secret, safe=""),
        quote_plus(secret),
        html.escape(secret),
        repr(secret),
        raw.hex(),
        raw.hex().upper(),
        *(encode(raw).decode() for encode in (b64encode, urlsafe_b64encode)),
        *(b64encode(before + raw + b"zz").decode() for before in (b"x:", b"Bearer ")),
        *(urlsafe_b64encode(before + raw + b"zz").decode() for before in (b"x:", b"Bearer ")),
        *("".join(escape.format(ord(char)) for char in secret) for escape in ESCAPES),
    ]  # fmt: skip


def hidden(secret: str, said: str, text: str) -> bool:
    """Whether no more of a form is left than its ends, which base64 mixes with its neighbours."""
    return "[key]" in text and len(text.replace("[key]", "")) <= len(said) - len(secret) and secret not in text


@settings(deadline=None)
@given(VISIBLE)
def test_whatever_encoders_make_of_it(secret: str) -> None:
    veil = veil_over((secret,))
    assert veil is not None
    for said in forms(secret):
        assert hidden(secret, said, veil.over(f"so: {said} is")[4:-3]), said


@pytest.mark.parametrize("secret", ["sk-upstream-0123456789", "Zq/canary+3f9~X=w7Kp2LmN8vTq5RsY", 'a"b\\c<d>e&f/g+h'])
def test_in_bytes_however_they_are_cut(secret: str) -> None:
    veil = veil_over((secret,))
    assert veil is not None
    for said in forms(secret)[: -len(ESCAPES)]:
        data = f'data: {{"a": "{said}"}}\n\ndata: x'.encode()
        for size in (1, 2, 3, 7, len(data)):
            veiled = Veiled(veil)
            out = b"".join(veiled.feed(data[at : at + size]) for at in range(0, len(data), size)) + veiled.end()
            assert hidden(secret, said, out.decode()[13:-11]), (said, size)
            assert (out[:13], out[-11:]) == (data[:13], data[-11:])


@settings(deadline=None)
@given(st.lists(st.text(max_size=300)), st.integers(1, 50))
def test_what_is_not_it_passes_as_it_is(texts: list[str], size: int) -> None:
    veil = veil_over(("sk-upstream-0123456789",))
    assert veil is not None
    data = "\n".join(texts).encode()
    veiled = Veiled(veil)
    assert b"".join(veiled.feed(data[at : at + size]) for at in range(0, len(data), size)) + veiled.end() == data


def test_whole_lines_never_wait() -> None:
    veil = veil_over(("sk-upstream-0123456789",))
    assert veil is not None
    veiled = Veiled(veil)
    event = b'data: {"content": "hello sk-upstream"}\n\n'
    assert veiled.feed(event) is event
    assert veiled.end() == b""


@pytest.mark.parametrize("secret", ["", "none", "EMPTY", "ollama", "sk-1234"])
def test_a_placeholder_is_no_secret(secret: str) -> None:
    assert veil_over((secret,)) is None
    assert veil_over(()) is veil_over(("", secret)) is None


TOKEN = "ya29.c.b0Aaekm1K" + "0aX-9_Zq7" * 110  # as long as Google's are


@pytest.mark.parametrize(
    ("style", "secret", "parts"),
    [
        ("sigv4", f"{AWS_ID}:{AWS_SECRET}:{AWS_TOKEN}", (AWS_SECRET, AWS_TOKEN)),
        ("bearer", TOKEN, (TOKEN,)),
    ],
    ids=["an AWS key with its token", "a long token"],
)
def test_all_parts_of_a_secret_and_of_a_long_one_its_end(style: str, secret: str, parts: tuple[str, ...]) -> None:
    veil = veil_over(hidden_of(style, secret))
    assert veil is not None
    for part in parts:
        end = part[-END:] if len(part) > 128 else part
        assert all(hidden(end, said, veil.over(said)) for said in forms(part))
        data = f'data: {{"a": "{part}"}}\n\ndata: x'.encode()
        for size in (1, 7, len(data)):
            veiled = Veiled(veil)
            out = b"".join(veiled.feed(data[at : at + size]) for at in range(0, len(data), size)) + veiled.end()
            assert out == data.replace(end.encode(), b"[key]")
    assert veil.over(AWS_ID) == AWS_ID


@pytest.mark.parametrize(
    "form", [str, json.dumps, lambda text: b64encode(text.encode()).decode()], ids=["bare", "JSON", "base64"]
)
def test_a_private_key_is_not_whole_in_any_form(form: Callable[[str], str]) -> None:
    veil = veil_over(hidden_of("service-account", document()))
    assert veil is not None
    for said in (pem(PRIVATE), document()):
        assert "[key]" in veil.over(form(said))


def test_events_that_come_in_a_form_which_no_veil_sees_through() -> None:
    veil = veil_over(("sk-upstream/0123456789",))
    assert veil is not None
    events = VeiledEvents(EventReader(), veil)
    half = b'data: {"a": "sk-upstr'
    assert events.feed(b'event: b\ndata: {"a": "sk-upstream\\/0123456789"}\n\n' + half) == [
        Event(b"b", b'{"a": "[key]"}')
    ]
    assert events.pending == len(half)
    assert events.close() == [Event(b"", b'{"a": "sk-upstr')]
