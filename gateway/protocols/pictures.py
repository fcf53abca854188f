"""What a picture is by its bytes, whatever it is declared as: some providers refuse one whose type is another."""

from base64 import b64decode

_MAGIC = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"GIF8", "image/gif"))
_HEAD = 24  # characters of base64, which are eighteen bytes


def picture_type(data: str) -> str | None:
    """The media type of a PNG, JPEG, GIF or WebP in base64; None: it is none of these."""
    head = data[:_HEAD]
    try:
        start = b64decode(head + "=" * (-len(head) % 4))
    except ValueError:
        return None
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if start.startswith(magic)), None)
