"""What may be dialled: the address table and the operator's list, without a socket."""

import ipaddress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from routing.base_url import BadUrl, parse_base_url
from routing.egress import Egress, ForbiddenAddress, objection, parse_allow
from tests.stage.addresses import FORBIDDEN, PUBLIC


def test_the_operators_list_is_exact_endpoints() -> None:
    entries = ["http://ollama:11434", " https://10.0.0.5:443 ", "http://[::1]:8000", ""]
    assert parse_allow(entries) == {
        ("http", "ollama", 11434),
        ("https", "10.0.0.5", 443),
        ("http", "::1", 8000),
    }


@pytest.mark.parametrize(
    "entry",
    [
        "ollama",
        "http://ollama",
        "http://ollama:1/",
        "http://ollama:1/v1",
        "http://*:80",
        "http://[::1]",
        "10.0.0.0/8",
    ],
)
def test_the_operators_list_refuses_what_is_not_an_endpoint_and_names_it(entry: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_allow(["http://good:80", entry])
    assert str(caught.value).startswith(f"{entry!r}: ")


@pytest.mark.parametrize("address", [*FORBIDDEN.split(), "", "8.8.8.8 ", "\u0668.8.8.8"])
def test_only_globally_routable_unicast_addresses_are_dialled(address: str) -> None:
    with pytest.raises(ForbiddenAddress):
        Egress().check_address(address)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public_addresses_are_dialled(address: str) -> None:
    Egress().check_address(address)
    Egress().check_address(ipaddress.ip_address(address))


@settings(deadline=None)
@given(st.ip_addresses())
@example(ipaddress.ip_address("192.88.99.1"))
def test_no_address_passes_that_the_standard_library_calls_private(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    try:
        Egress().check_address(address)
    except ForbiddenAddress:
        return
    assert address.is_global and not address.is_multicast and not address.is_reserved


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "::1", "fd00::1", "169.254.1.1", "::ffff:10.0.0.1", "8.8.8.8"]
)
def test_a_listed_endpoint_may_be_private(address: str) -> None:
    Egress().check_address(address, allowed_by_name=True)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "ff02::1", "255.255.255.255", "fe80::1%lo", "x"],
)
def test_even_a_listed_endpoint_is_a_unicast_address(address: str) -> None:
    with pytest.raises(ForbiddenAddress):
        Egress().check_address(address, allowed_by_name=True)


@pytest.mark.parametrize(
    "text",
    [
        "http://api.example.com",
        "https://api.example.com:22",
        "https://api.example.com:80",
        "http://localhost:8443",
        "https://localhost",
        "https://a.localhost",
        "https://127.0.0.1",
        "https://[::1]",
        "https://10.0.0.1:8443",
        "https://0.0.0.0",
        "https://[::ffff:10.0.0.1]",
        "https://[64:ff9b::a00:1]",
        "https://169.254.169.254",
    ],
)
def test_nothing_set_means_denied(text: str) -> None:
    with pytest.raises(ForbiddenAddress):
        Egress().check_url(parse_base_url(text))


@pytest.mark.parametrize(
    "text",
    ["https://api.example.com", "https://api.example.com:8443/v1", "https://8.8.8.8", "https://[2a00::1]"],
)
def test_https_to_a_public_place_needs_no_list(text: str) -> None:
    Egress().check_url(parse_base_url(text))


def test_the_list_is_exact_in_scheme_host_and_port() -> None:
    egress = Egress(parse_allow(["http://ollama:11434", "http://127.0.0.1:8000"]))
    egress.check_url(parse_base_url("http://ollama:11434/v1"))
    egress.check_url(parse_base_url("http://127.0.0.1:8000"))
    for text in (
        "https://ollama:11434",
        "http://ollama:11435",
        "http://ollama",
        "http://x.ollama:11434",
        "http://127.0.0.2:8000",
        "https://127.0.0.1:8000",
    ):
        with pytest.raises(ForbiddenAddress):
            egress.check_url(parse_base_url(text))


def test_the_ports_are_the_operators_to_choose() -> None:
    Egress(ports=frozenset({9443})).check_url(parse_base_url("https://api.example.com:9443"))
    with pytest.raises(ForbiddenAddress):
        Egress(ports=frozenset({9443})).check_url(parse_base_url("https://api.example.com"))


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434"),
        ("http://localhost:8080/v1", "http://localhost:8080"),
        ("http://models.internal/v1", "http://models.internal:80"),
        ("https://10.0.0.7/v1", "https://10.0.0.7:443"),
        ("https://vendor.example:9443", "https://vendor.example:9443"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://169.254.169.254/latest", "http://169.254.169.254:80"),
    ],
)
def test_an_objection_names_the_entry_that_lifts_it(text: str, entry: str) -> None:
    said = objection(text, [])
    assert said is not None
    assert said.startswith(f"{text} will not be dialled: ")
    assert said.endswith(f" To allow it, add {entry} to EGRESS_ALLOW and start the gateway anew.")
    assert objection(text, [entry]) is None


def test_what_no_list_opens_gets_no_advice() -> None:
    said = objection("http://0.0.0.0:8000/v1", ["http://0.0.0.0:8000"])
    assert said is not None
    assert "EGRESS_ALLOW" not in said


def test_a_public_address_meets_no_objection() -> None:
    assert objection("https://vendor.example/v1", []) is None
