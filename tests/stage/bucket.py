"""A storage of S3's kind on a socket: moto's server as a process of its own, which checks signatures as AWS does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.processes import free_port
from tests.stage.product import until

UNCHECKED = 4  # what making the user takes


@dataclass(frozen=True)
class Storage:
    """It listens at `url`; `secret` is an access key as a schedule has it, `client` boto3's with that key."""

    url: str
    secret: str
    client: Any

    def make(self, bucket: str) -> None:
        """Makes a bucket."""
        self.client.create_bucket(Bucket=bucket)

    def files(self, bucket: str) -> dict[str, bytes]:
        """What is in a bucket, by name."""
        listed = self.client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {one["Key"]: self.client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in listed}

    def unfinished(self, bucket: str) -> list[str]:
        """Uploads in parts that have not ended."""
        return [one["UploadId"] for one in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


@contextmanager
def storage(folder: Path) -> Iterator[Storage]:
    """One that listens while the block runs; its log in `folder`."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    port, log = free_port(), folder / "storage.log"
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(UNCHECKED), "MOTO_S3_CUSTOM_ENDPOINTS": ""}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            env=environment, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        until(lambda: b"Running on" in log.read_bytes() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        anybody = {"aws_access_key_id": "ANYBODY", "aws_secret_access_key": "nothing", "region_name": "us-east-1"}
        people = boto3.client("iam", endpoint_url=url, **anybody)
        people.create_user(UserName="exports")
        everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
        people.put_user_policy(UserName="exports", PolicyName="all", PolicyDocument=json.dumps(everything))
        key = people.create_access_key(UserName="exports")["AccessKey"]
        client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", config=Config(s3={"addressing_style": "path"}),
            aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"],
        )  # fmt: skip
        client.list_buckets()
        yield Storage(url, f"{key['AccessKeyId']}:{key['SecretAccessKey']}", client)
    finally:
        process.terminate()
        process.wait(30)
