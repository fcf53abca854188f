"""Files in a bucket: signed as AWS signs, in parts when they are long, nothing left of what broke off."""

import io
import os
import socket
import tracemalloc
from typing import Any

import pytest

from gateway.storage.bucket import PART, Address, Bucket
from gateway.storage.refusal import Refused
from routing.base_url import BadUrl
from routing.egress import Egress, parse_allow
from routing.outside import Answer, Outside
from routing.provider_secret import AwsKey, read_aws_key
from tests.stage.bucket import Storage

HOST = "s3.us-east-1.amazonaws.com"


def client_of(*allowed: str, **options: Any) -> Outside:
    """A client that may dial these and nothing else."""
    return Outside(Egress(parse_allow(list(allowed))), **options)


class Dying(Outside):
    """Does not live to see the answer to its request number `at`."""

    def __init__(self, url: str, at: int) -> None:
        super().__init__(Egress(parse_allow([url])))
        self.left = at

    def ask(self, *args: Any, **kwargs: Any) -> Answer:
        answer = super().ask(*args, **kwargs)
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return answer


def test_in_both_styles_and_in_parts_of_which_one_is_in_memory(s3: Storage) -> None:
    s3.make("styles")
    port, begun = s3.url.rpartition(":")[2], list[str]()
    here = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", int(port)))]
    hosted = client_of(f"http://styles.{HOST}:{port}", resolve=lambda host, port: here)
    key = read_aws_key(s3.secret)
    path = Bucket(client_of(s3.url), Address(s3.url, "us-east-1", "styles", True), key, begun.append)
    host = Bucket(hosted, Address(f"http://{HOST}:{port}", "us-east-1", "styles", False), key, begun.append)
    content = os.urandom(2 * PART + 7)
    with io.BytesIO(content) as file:
        tracemalloc.start()
        path.put("deep/er/long.bin", file, len(content))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert PART < peak < 2.5 * PART  # what is read, and what is sent
    assert (len(begun), begun[1]) == (2, "") and s3.unfinished("styles") == []
    path.put("a.csv", io.BytesIO(b"one"), 3)
    host.put("b.csv", io.BytesIO(b"two"), 3)
    host.put("a.csv", io.BytesIO(b"another"), 7)
    assert s3.files("styles") == {"a.csv": b"another", "b.csv": b"two", "deep/er/long.bin": content}
    assert host.get("a.csv", 7) == b"another" and path.get("c.csv", 1000) is None


def test_what_broke_off_is_given_up(s3: Storage) -> None:
    s3.make("broken")
    address, key, begun = Address(s3.url, "us-east-1", "broken", True), read_aws_key(s3.secret), list[str]()
    with pytest.raises(KeyboardInterrupt):
        Bucket(Dying(s3.url, 1), address, key, begun.append).put("a", io.BytesIO(bytes(PART + 1)), PART + 1)
    assert s3.unfinished("broken") == begun and len(begun) == 1
    bucket = Bucket(client_of(s3.url), address, key, begun.append)
    bucket.forget("a", begun[0])
    bucket.forget("a", begun[0])
    assert s3.unfinished("broken") == [] and s3.files("broken") == {}


def test_a_refusal_says_its_code_and_nothing_else(s3: Storage) -> None:
    s3.make("refused")
    key = read_aws_key(s3.secret)
    wrong = AwsKey(key.id, "another")
    for bucket, by, said in (
        ("refused", wrong, "status 403 SignatureDoesNotMatch"),
        ("nowhere", key, "status 404 NoSuchBucket"),
    ):
        place = Bucket(client_of(s3.url), Address(s3.url, "us-east-1", bucket, True), by, print)
        with pytest.raises(Refused) as caught:
            place.put("a", io.BytesIO(b"1"), 1)
        assert str(caught.value) == said
        with pytest.raises(Refused):
            place.get("a", 10_000)
    assert s3.files("refused") == {}


@pytest.mark.parametrize("endpoint", ["https://user@s3.test", "https://s3.test/?x", "s3.test", "https://127.1"])
def test_an_endpoint_is_a_base_url(endpoint: str) -> None:
    for path_style in (False, True):
        with pytest.raises(BadUrl):
            Address(endpoint, "us-east-1", "bucket", path_style).base()
