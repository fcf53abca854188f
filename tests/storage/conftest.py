"""The storage that buckets are in."""

from collections.abc import Iterator

import pytest

from tests.stage.bucket import Storage, storage


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """One for all tests; each makes buckets of its own."""
    with storage(tmp_path_factory.mktemp("storage")) as found:
        yield found
