"""Signatures of AWS: the same as its own library's for the same request."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.sigv4 import headers
from routing.provider_secret import AwsKey

KEY = AwsKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
AT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)


def test_the_example_of_aws_s_reference() -> None:
    """The request of the signature test suite ("get-vanilla"), whose signature AWS published."""
    made = headers(
        KEY,
        region="us-east-1",
        service="service",
        method="GET",
        authority="example.amazonaws.com",
        path="/",
        body=b"",
        at=AT,
    )
    assert made == [
        ("X-Amz-Date", "20150830T123600Z"),
        (
            "Authorization",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
            "SignedHeaders=host;x-amz-date, "
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
    ]


segments = st.from_regex(
    r"[A-Za-z0-9_~:@$+=,-]([A-Za-z0-9._~:@$+=,-]|%2F|%20|%3F|%28|%26|%C3%A9){0,20}", fullmatch=True
)
paths = st.lists(segments, max_size=4).map(lambda parts: "/" + "/".join(parts))
queries = st.lists(st.from_regex(r"[A-Za-z0-9._~-]{1,6}(=[A-Za-z0-9._~-]{0,6})?", fullmatch=True), max_size=4)
names = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True).map(lambda name: f"X-T-{name}")
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20).map(str.strip)


@given(
    token=st.sampled_from(["", "AQoDYXdzEPT//////////wEXAMPLE="]),
    method=st.sampled_from(["GET", "POST"]),
    port=st.sampled_from(["", ":8443"]),
    path=paths,
    query=queries,
    sent=st.lists(st.tuples(names, values), max_size=3, unique_by=lambda pair: pair[0].lower()),
    body=st.binary(max_size=60),
    at=st.integers(1_600_000_000, 2_200_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    region=st.sampled_from(["us-east-1", "eu-central-1"]),
)
def test_botocore_signs_the_same(
    token: str,
    method: str,
    port: str,
    path: str,
    query: list[str],
    sent: list[tuple[str, str]],
    body: bytes,
    at: datetime,
    region: str,
) -> None:
    auth: Any = pytest.importorskip("botocore.auth")
    awsrequest: Any = pytest.importorskip("botocore.awsrequest")
    authority, target = f"bedrock-runtime.{region}.amazonaws.com{port}", path + ("?" + "&".join(query) if query else "")
    request = awsrequest.AWSRequest(method=method, url=f"https://{authority}{target}", data=body, headers=dict(sent))
    signer = auth.SigV4Auth(
        SimpleNamespace(access_key=KEY.id, secret_key=KEY.secret, token=token or None), "bedrock", region
    )
    with pytest.MonkeyPatch.context() as patch:  # botocore takes the time from a function of its own
        patch.setattr(auth, "get_current_datetime", lambda *_, **__: at.replace(tzinfo=None))
        signer.add_auth(request)
    ours = headers(
        AwsKey(KEY.id, KEY.secret, token),
        region=region,
        service="bedrock",
        method=method,
        authority=authority,
        path=target,
        body=body,
        sent=sent,
        at=at,
    )
    names = ["X-Amz-Date", *(["X-Amz-Security-Token"] if token else []), "Authorization"]
    assert ours == [(name, request.headers[name]) for name in names]
