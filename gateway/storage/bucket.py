"""A bucket of an S3-compatible storage: as much of S3's API as putting files into it needs.

A request is signed as AWS signs (`gateway/upstream/sigv4.py`), its body's hash in it, so what arrives is what was sent.
What is longer than a part goes in parts, of which one at a time is in memory. Names have plain letters, digits and
marks alone, which S3 signs as they stand. Of an answer its status and its code are told, nothing else of it.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape, unescape
from typing import BinaryIO
from urllib.parse import quote, urlencode

from gateway.storage.refusal import Refused
from gateway.upstream import sigv4
from routing.base_url import BaseUrl, parse_base_url
from routing.outside import Answer, NoAnswer, Outside
from routing.provider_secret import AwsKey

PART = 8 << 20  # bytes; S3 takes none below 5 MiB but the last
MOST_PARTS = 10_000
TRIES = 3  # of a part
SECONDS = 300.0  # of an exchange: a part on a line of a quarter of a megabit
CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
UPLOAD = re.compile(rb"<UploadId>([^<>\s]{1,1024})</UploadId>")
AGAIN = {429, 500, 502, 503, 504}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a bucket is: `path_style` has its name in the path, else it stands before the endpoint's host."""

    endpoint: str
    region: str
    bucket: str
    path_style: bool

    def base(self) -> BaseUrl:
        """The URL that names of files follow. Raises `BadUrl`."""
        base = parse_base_url(self.endpoint)
        if self.path_style:
            return parse_base_url(f"{base}/{self.bucket}")
        port = f":{base.port}" if base.authority.endswith(f":{base.port}") else ""
        return parse_base_url(f"{base.scheme}://{self.bucket}.{base.host}{port}{base.path}")


class Bucket:
    """A bucket. Whatever is asked of it raises `Refused`, `NoAnswer`, `BadUrl` or `ForbiddenAddress`.

    `begun` is told what the bucket calls an upload in parts, before its first part, and "" when it has ended.
    """

    def __init__(self, client: Outside, address: Address, key: AwsKey, begun: Callable[[str], object]) -> None:
        self._client = client
        self._address = address
        self._base = address.base()
        self._key = key
        self._begun = begun

    def get(self, name: str, most: int) -> bytes | None:
        """What is under a name, if anything is; `most` bytes."""
        answer = self._ask("GET", name, most_bytes=most)
        if answer.status == 404 and b"<Code>NoSuchBucket<" not in answer.body:
            return None
        return _taken(answer).body

    def put(self, name: str, file: BinaryIO, size: int) -> None:
        """Puts `size` bytes under a name, in place of what was there."""
        if size <= PART:
            _taken(self._ask("PUT", name, content=file.read(size)))
        else:
            self._put_in_parts(name, file, size)

    def forget(self, name: str, upload: str) -> None:
        """Gives up an upload in parts, what has arrived of it too; one that is not known is none."""
        answer = self._ask("DELETE", name, [("uploadId", upload)])
        if answer.status != 404:
            _taken(answer)

    def _put_in_parts(self, name: str, file: BinaryIO, size: int) -> None:
        answer = _taken(self._ask("POST", name, [("uploads", "")]))
        found = UPLOAD.search(answer.body)
        if found is None:
            raise Refused("it names no upload")
        upload = unescape(found[1].decode("latin-1"))
        self._begun(upload)
        length = max(PART, -(-size // MOST_PARTS))
        tags: list[str] = []
        while part := file.read(length):
            tags.append(self._part(name, upload, len(tags) + 1, part))
        listed = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for number, tag in enumerate(tags, 1)
        )
        whole = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        answer = _taken(self._ask("POST", name, [("uploadId", upload)], content=whole))
        if b"<CompleteMultipartUploadResult" not in answer.body:  # S3 tells an error in a 200 as well
            raise Refused(_why(answer))
        self._begun("")

    def _part(self, name: str, upload: str, number: int, part: bytes) -> str:
        for left in reversed(range(TRIES)):
            try:
                answer = self._ask("PUT", name, [("partNumber", str(number)), ("uploadId", upload)], content=part)
            except NoAnswer:
                if not left:
                    raise
                continue
            if answer.status not in AGAIN or not left:
                break
        tag = _taken(answer).headers.get("etag")
        if not tag:
            raise Refused("a part has no ETag")
        return tag

    def _ask(
        self,
        method: str,
        name: str,
        query: Sequence[tuple[str, str]] = (),
        *,
        content: bytes = b"",
        most_bytes: int = 64 * 1024,
    ) -> Answer:
        path = f"{self._base.path}/{name}"
        words = urlencode(list(query), quote_via=quote)
        sent = [("x-amz-content-sha256", hashlib.sha256(content).hexdigest())]
        proof = sigv4.headers(
            self._key,
            region=self._address.region,
            service="s3",
            method=method,
            authority=self._base.authority,
            path=f"{path}?{words}" if words else path,
            body=content,
            sent=sent,
            at=datetime.now(UTC),
        )
        return self._client.ask(
            method,
            f"{self._base}/{name}",
            query=query,
            headers=dict([*sent, *proof]),
            content=content,
            seconds=SECONDS,
            most_bytes=most_bytes,
        )


def _taken(answer: Answer) -> Answer:
    """The answer. Raises `Refused` where it says no."""
    if not 200 <= answer.status < 300:
        raise Refused(_why(answer))
    return answer


def _why(answer: Answer) -> str:
    found = CODE.search(answer.body)
    return f"status {answer.status}" + (f" {found[1].decode()}" if found else "")
