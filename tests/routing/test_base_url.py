"""What is a base URL, a path segment and a request target: the grammar, without a socket."""

import ipaddress
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yarl import URL

from routing.base_url import BadUrl, BaseUrl, parse_base_url, request_target, safe_segment


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("https://api.example.com", BaseUrl("https", "api.example.com", 443)),
        ("https://api.example.com/", BaseUrl("https", "api.example.com", 443)),
        ("https://API.Example.com:8443/v1/", BaseUrl("https", "api.example.com", 8443, "/v1")),
        ("http://localhost:11434/v1", BaseUrl("http", "localhost", 11434, "/v1")),
        ("https://1.2.3.4/a/b.c/v1beta", BaseUrl("https", "1.2.3.4", 443, "/a/b.c/v1beta")),
        ("https://[2606:4700:0:0::1111]:443", BaseUrl("https", "2606:4700::1111", 443)),
        ("https://xn--bcher-kva.example/@x/a+b", BaseUrl("https", "xn--bcher-kva.example", 443, "/@x/a+b")),
        ("https://h/a..b/...c", BaseUrl("https", "h", 443, "/a..b/...c")),
    ],
)
def test_a_base_url_is_read(text: str, base: BaseUrl) -> None:
    assert parse_base_url(text) == base


# Schemes; two readings of one text; no name; not four decimals; no port; no plain path.
NOT_A_URL = r"""
    api.example.com //api.example.com ftp://h/ file:///etc/passwd gopher://h:70/ dict://h:11211/ unix:/run/s
    data:text/plain,x javascript:alert(1) HTTPS://h https:h https:/h https:///h

    https:/\a https:\\a https://a@b https://a:b@c https://a\@b https://a#@b https://a?@b https://a\b/ https://a/\b
    https://a%00.b https://a%2eb https://[::1]x https://[::1]@a

    https:// https://. https://a. https://localhost. https://.a https://a..b https://-a https://a- https://a_b
    https://*.a

    https://127.1 https://0 https://2130706433 https://0x7f.1 https://0177.1 https://0x7f000001 https://127.0.0.01
    https://256.0.0.1 https://1.2.3 https://1.2.3.4.5 https://1.2.3.0x4 https://a.0x https://[fe80::1%eth0]
    https://[fe80::1%25eth0] https://[1.2.3.4] https://[::1 https://::1 https://[] https://[v1.x] https://[:::]
    https://[1:2:3:4:5:6:7:8:9]

    https://a: https://a:0 https://a:65536 https://a:99999 https://a:0443 https://a:-1 https://a:+1 https://a:4x
    https://a:443:443

    https://a// https://a//b https://a/b//c https://a/. https://a/.. https://a/../b https://a/b/.. https://a/...
    https://a/%2e%2e https://a/b%2fc https://a/..;/b https://a/b;c https://a/b?c https://a/b#c
"""
NOT_PLAIN = [
    "",
    *("https://a b", " https://a", "https://a ", "https://a\n", "https://a\t.b", "https://a\r\nHost: b"),
    "https://a\0",
    # Dots, digits and letters of other scripts, and one that is not seen.
    *("https://a\u3002b", "https://\u2460.b", "https://\u0661\u0662\u0667.0.0.1", "https://\u0430pi.example"),
    *("https://a\u00ad.b", "https://a:\u0664\u0664\u0663", "https://a/\u00e9"),
    # Too long: a label, a name, the whole.
    *("https://" + "a" * 64, "https://" + ".".join(["a" * 60] * 5), "https://a/" + "b" * 2048),
]


@pytest.mark.parametrize("text", NOT_A_URL.split() + NOT_PLAIN)
def test_what_is_not_plainly_a_base_url_is_refused(text: str) -> None:
    with pytest.raises(BadUrl):
        parse_base_url(text)


@settings(deadline=None)
@given(st.text(st.sampled_from("htps:/.@\\#?%[]0127axA-_;\n\t \u3002"), max_size=30))
@example("a.b:8443/c/")
@example("[::1]:1/a")
@example("127.0.0.1")
def test_what_is_taken_is_read_alike_by_other_parsers(tail: str) -> None:
    for text in (tail, "https://" + tail):
        try:
            base = parse_base_url(text)
        except BadUrl:
            continue
        split, url = urlsplit(text), URL(text)
        assert split.hostname is not None
        host = str(ipaddress.IPv6Address(split.hostname)) if ":" in split.hostname else split.hostname
        assert (split.scheme, host) == (base.scheme, base.host) == (url.scheme, url.raw_host)
        assert base.port == url.port == (split.port or {"http": 80, "https": 443}[split.scheme])
        assert base.path == split.path.rstrip("/") == url.raw_path.rstrip("/")
        assert parse_base_url(str(base)) == base


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("https://a:443", "a"),
        ("http://a:80", "a"),
        ("http://a:443", "a:443"),
        ("https://a:8443/v1", "a:8443"),
        ("https://[2606:4700::1]", "[2606:4700::1]"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_the_host_header_names_the_port_unless_it_is_the_schemes_own(text: str, authority: str) -> None:
    assert parse_base_url(text).authority == authority


@pytest.mark.parametrize("text", ["gpt-4o", "claude-3@20240620", "a.b", "v2:0", "..a", "a..", "llama3.1:8b"])
def test_a_plain_id_is_a_segment(text: str) -> None:
    assert safe_segment(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *(".", "..", "...", "a/b", "/", "../x", "..\\x", "%2e%2e", "%2f", "a%", "a?b", "a#b", "a;b"),
        *("", "a b", "a\n", "\u00e9", "a" * 257),
    ],
)
def test_an_id_that_would_address_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadUrl):
        safe_segment(text)


def test_a_request_path_may_end_in_a_query() -> None:
    assert request_target("/v1beta", "/models/m:streamGenerateContent?alt=sse&a=1") == (
        "/v1beta/models/m:streamGenerateContent?alt=sse&a=1"
    )
    assert request_target("", "/v1/models") == "/v1/models"


@pytest.mark.parametrize(
    "name", ["arn%3Aaws:x:1:profile%2Fabc", "tuned%3Fa%3D1%26b", "a%20b", "%C3%A9", "a%2F..b", "%E4%BD%A0"]
)
def test_a_providers_own_name_may_stand_encoded_in_a_request_path(name: str) -> None:
    path = f"/model/{name}/invoke"
    assert request_target("/v1", path) == f"/v1{path}"


@pytest.mark.parametrize(
    "name",
    [
        *("%2e", "%2E%2E", "..%2Fx", "x%2F..", "x%2F..%2Fy", "x%2F", "%2Fx", "x%2F%2Fy", "%2f", "a%5C..", "%252F", "%"),
        *("%0A", "%00", "%7F", "%1F", "%zz", "%2"),
    ],
)
def test_nothing_encoded_leads_elsewhere(name: str) -> None:
    with pytest.raises(BadUrl):
        request_target("/v1", f"/model/{name}/invoke")


@pytest.mark.parametrize(
    "path",
    [
        *(
            "v1",
            "/",
            "//v1",
            "/v1/",
            "/../x",
            "/a/./b",
            "/%2e%2e/x",
            "/a?b?c",
            "/a?b#c",
            "?a",
            "/..?a",
            "/a?b=%0a",
        ),
        *("", "/a b", "/a\r\nX: 1", "/a?b=\n", "/" + "a" * 2048),
    ],
)
def test_a_request_path_that_leaves_its_base_is_refused(path: str) -> None:
    with pytest.raises(BadUrl):
        request_target("/v1", path)
