"""The first bytes of an answer: are they JSON or an event stream? A Content-Type is not asked, many servers lie."""

_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_MAX_HELD = 1 << 16


class Opening:
    """Holds bytes back until one of them says something. Blanks, a byte order mark and comments do not."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> tuple[bool, bytes] | None:
        """Whether it is JSON, and the bytes from where that begins or, of a stream, is sure; None: not yet."""
        head = self._held + data
        self._held = b""
        while True:
            head = head.lstrip(_BLANK)
            if len(head) < 3 and _BOM.startswith(head):
                break
            if head.startswith(_BOM):
                head = head[3:]
            elif head.startswith(b"{"):
                return True, head
            elif not head.startswith(b":") or len(head) > _MAX_HELD:
                return False, head
            else:
                ends = [at for at in (head.find(b"\n"), head.find(b"\r")) if at >= 0]
                if not ends:
                    break
                head = head[min(ends) :]
        self._held = head
        return None
