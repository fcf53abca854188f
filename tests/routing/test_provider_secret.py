"""A provider's secret is read as its style has it, and what is none of it is told without being shown."""

import re

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from routing.provider_secret import (
    AwsKey,
    UnusableSecret,
    check,
    hidden,
    hint,
    read_aws_key,
    read_service_account,
    token_address,
)
from tests.stage.accounts import AWS_ID, AWS_SECRET, AWS_TOKEN, RSA, document, pem

AWS = f"{AWS_ID}:{AWS_SECRET}"


def test_an_aws_key_has_an_id_a_secret_and_perhaps_a_token() -> None:
    assert read_aws_key("AKID:sec/ret+=") == AwsKey("AKID", "sec/ret+=")
    assert read_aws_key("ASIA:secret:token") == AwsKey("ASIA", "secret", "token")
    assert repr(read_aws_key("ASIA:hush:word")) == "AwsKey(id='ASIA')"


@pytest.mark.parametrize(
    "wrong", ["", "AKID", "AKID:", ":secret", "a:b:c:d", "a:b:", "AKID: secret", "AKID:sec ret", "AKID:s\n", '{"a":1}']
)
def test_what_is_no_aws_key_is_told(wrong: str) -> None:
    with pytest.raises(UnusableSecret) as caught:
        check("sigv4", wrong)
    assert str(caught.value) == (
        "an AWS key is ID:SECRET, or ID:SECRET:SESSION_TOKEN if it is temporary, without spaces"
    )


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("", "a service account's key is the whole JSON document of it, from { to }"),
        ("sk-1", "a service account's key is the whole JSON document of it, from { to }"),
        (document()[:-3], "a service account's key is the whole JSON document of it, from { to }"),
        ("[1]", "a service account's key is the whole JSON document of it, from { to }"),
        (document(type="authorized_user"), 'this JSON document is another kind of key: its "type" is not'),
        ("{}", "the service account's key has no client_email"),
        (document(private_key=None), "the service account's key has no private_key"),
        (document(private_key_id=""), "the service account's key has no private_key_id"),
        (document(token_uri=None), "the service account's key has no token_uri"),
        (document(token_uri="oauth2.googleapis.com/token"), "the token_uri of the service account's key is no address"),
        (document(token_uri="https://a.example/t?x=1"), "the token_uri of the service account's key is no address"),
        (document(token_uri="https://a.example"), "the token_uri of the service account's key is no address"),
        (
            document(private_key="-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "the private_key of the service account's key is no RSA key in PEM",
        ),
        (
            document(private_key=pem(ec.generate_private_key(ec.SECP256R1()))),
            "the private_key of the service account's key is no RSA key in PEM",
        ),
        (document(padding="x" * 20_000), "a secret has 16,384 characters at most"),
    ],
    ids=[
        *("empty", "a word", "cut off", "a list", "another kind", "nothing", "no key", "no id of it", "no address"),
        *("half an address", "a query", "no path", "no PEM", "an elliptic curve", "too long"),
    ],
)
def test_what_is_no_key_of_a_service_account_is_told(wrong: str, told: str) -> None:
    with pytest.raises(UnusableSecret) as caught:
        check("service-account", wrong)
    assert str(caught.value).startswith(told)
    assert "BEGIN" not in str(caught.value) and "meter@" not in str(caught.value)


def test_a_service_account_s_key_may_be_pasted_on_one_line() -> None:
    whole, one_line = document(), document().replace("\n", "")
    check("service-account", one_line)
    assert read_service_account(one_line) == read_service_account(whole)
    assert "BEGIN" not in repr(read_service_account(whole))


def test_other_secrets_are_one_word_for_a_header() -> None:
    check("bearer", "sk-1")
    for wrong in ("", "two words", "line\nbreak", "clé", "x" * 4097):
        with pytest.raises(UnusableSecret):
            check("bearer", wrong)


def test_a_hint_is_of_what_may_be_known() -> None:
    assert hint("bearer", "sk-0123456789abcdef") == "cdef"
    assert hint("bearer", "short") == "…"
    assert hint("sigv4", f"{AWS}:{AWS_TOKEN}") == "0042"
    assert hint("service-account", document(private_key_id="0123456789abcdef01")) == "ef01"


def test_what_nobody_may_read() -> None:
    assert hidden("bearer", "sk-1") == ("sk-1",)
    assert hidden("none", "") == ()
    assert hidden("sigv4", AWS) == (AWS_SECRET,)
    assert hidden("sigv4", f"{AWS}:{AWS_TOKEN}") == (AWS_SECRET, AWS_TOKEN)
    (line,) = hidden("service-account", document())
    assert re.fullmatch("[A-Za-z0-9+/]{64}", line) and line in pem(RSA).split("\n")[8:-8]


def test_where_a_secret_is_changed_into_a_token() -> None:
    assert token_address("service-account", document()) == "https://oauth2.googleapis.com/token"
    assert token_address("sigv4", AWS) is token_address("bearer", "sk-1") is None
