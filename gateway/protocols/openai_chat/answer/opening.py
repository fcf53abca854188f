"""The first bytes of an answer: are they JSON or an event stream? A Content-Type is not asked, many servers lie."""

_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_MAX_HELD = 1 << 16


def opening(head: bytes) -> tuple[bool | None, bytes]:
    """Whether it is JSON, and the bytes from where that begins or, of a stream, is sure.

    None: not yet, since blanks, a byte order mark and comments say nothing; then the bytes belong before the next ones.
    """
    while True:
        head = head.lstrip(_BLANK)
        if head.startswith(b"{"):
            return True, head
        if len(head) < 3 and _BOM.startswith(head):
            return None, head
        if head.startswith(_BOM):
            head = head[3:]
        elif not head.startswith(b":") or len(head) > _MAX_HELD:
            return False, head
        else:
            ends = [at for at in (head.find(b"\n"), head.find(b"\r")) if at >= 0]
            if not ends:
                return None, head
            head = head[min(ends) :]
