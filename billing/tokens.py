"""Token counts of one generation: what was read, what was written, and which count is inside which.

The counts are inclusive buckets, as OpenAI reports them. Inside `prompt`: `cached`, `cache_write_5m`,
`cache_write_1h`, `audio_input`, `image_input`, `video_input`. Inside `completion`: `reasoning`, `audio_output`,
`image_output`. Protocol modules normalise into this shape (one vendor's input count excludes its cache counts,
another's candidates exclude thoughts). What is no token is counted beside them: searches, pictures, seconds.
"""

from math import ceil
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

LARGEST = 10**9  # A count above this is a lie or an overflow, never a bill.
MOST_EACH = 10**5  # The same of what is no token: a day has fewer seconds.


class Tokens(Struct, frozen=True):
    """Counts of one generation, each >= 0 and <= `LARGEST`.

    The last three are no tokens, and <= `MOST_EACH`: calls of a search, `images` that were made, `seconds` of sound or
    video that were read or made.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    audio_input: int = 0
    image_input: int = 0
    reasoning: int = 0
    audio_output: int = 0
    web_searches: int = 0
    video_input: int = 0
    image_output: int = 0
    images: int = 0
    seconds: int = 0

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion

    @property
    def plain(self) -> bool:
        """Whether nothing is counted but prompt and completion, as of most."""
        return self == Tokens(self.prompt, self.completion)

    def replaced(self, **counts: int) -> "Tokens":
        """These with some counts of others."""
        return replace(self, **counts)

    def __add__(self, other: "Tokens") -> "Tokens":
        """Both, bucket by bucket."""
        return Tokens(*map(int.__add__, _counts(self), _counts(other)))  # `astuple` copies deeply: 100 us


_counts = attrgetter(*Tokens.__struct_fields__)


def estimate(text_bytes: int, bytes_a_token: float = 4.0) -> int:
    """Tokens that `text_bytes` bytes of UTF-8 stand for, when nobody counted: four bytes a token, rounded up.

    Used only for rows marked `estimated`. A byte-level tokenizer never makes more tokens than bytes, so the hold, which
    counts a token a byte, always covers it.
    """
    return ceil(text_bytes / bytes_a_token)
