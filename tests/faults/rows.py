"""The table: how a provider fails, and what is promised of it. `promises` says how a row is read."""

from itertools import product
from urllib.parse import quote

from tests.faults.promises import SAID, Answered, Broken, Cell, Late, Refused, Row

STREAM_ONLY, WHOLE_ONLY = "as=sse&", "as=json&"

UNREACHABLE = Refused(502, "upstream_unreachable")
# Who was sent the request, and did not refuse it, may bill it.
LEFT = Refused(502, "upstream_unreachable", basis="unknown")
TIMEOUT = Refused(504, "upstream_timeout", basis="unknown")
NO_CONNECTION = Refused(504, "upstream_timeout", basis="unknown|nothing")  # as it was made or not
TRUNCATED = Refused(502, "upstream_truncated", basis="unknown")
INVALID = Refused(502, "upstream_invalid_response", basis="unknown")
FAILED = Refused(502, "upstream_error")
AUTH = Refused(502, "upstream_auth")


def _limited(first: int, last: int) -> Refused:
    return Refused(429, "upstream_rate_limited", "rate_limit_error", (first, last))


EXHAUSTED = Refused(429, "upstream_exhausted", "rate_limit_error", (1, 60))
OVERLOADED = Refused(503, "upstream_overloaded", retry_after=(1, 60))
QUICK = {"connect_timeout": 1.0}
SHORT = {"connect_timeout": 0.5, "first_byte_timeout": 0.5}
TEXT = f"text={quote(SAID)}&prompt=11"

UNREACHED = [
    Row(
        "nobody listens",
        "A refused connection is a 502 within the time a connection may take",
        "",
        UNREACHABLE,
        "unreachable",
        at="nobody",
        provider=QUICK,
        within=1.0,
    ),
    Row(
        "black hole",
        "A connection on which nothing ever comes is a 504 at the first byte's deadline",
        "",
        TIMEOUT,
        "timeout",
        at="silent",
        provider=SHORT,
    ),
    Row(
        "black hole amid the handshake",
        "A TLS handshake that is never answered is a 504 at the connection's deadline",
        "",
        NO_CONNECTION,
        "timeout",
        at="silent tls",
        provider=SHORT,
    ),
    Row("no such name", "A name without an address is a 502", "", UNREACHABLE, "unreachable", at="nowhere"),
    *(
        Row(
            f"TLS, {who}",
            "Who cannot prove to be the name that was asked for is a 502, and hears nothing in plain text",
            "",
            UNREACHABLE,
            "unreachable",
            at=f"tls {who}",
        )
        for who in ("expired", "of a stranger", "of another name", "not spoken")
    ),
    *(
        Row(f"{verb} before a byte", "A connection that ends without a byte is a 502", f"fault={fault}", LEFT,
            "unreachable", fresh=True)
        for verb, fault in (("reset", "reset_before"), ("closed", "close_before"))
    ),
    Row(
        "reset after the headers",
        "Headers alone are no answer: their end is a 502, for nothing was relayed",
        f"{TEXT}&fault=reset_headers",
        TRUNCATED,
        "truncated",
    ),
]  # fmt: skip

BROKEN = [
    Row(
        f"{how} amid the answer",
        "What was relayed stays and is paid for; an error event says that it broke, and [DONE] never comes",
        f"{TEXT}&fault={fault}@4",
        Broken("upstream_truncated"),
        "truncated",
        whole=whole,
        whole_fault=whole_fault,
    )
    for how, fault, whole, whole_fault in (
        ("reset", "reset_mid", TRUNCATED, "truncated"),
        ("cut", "cut_mid", TRUNCATED, "truncated"),
        ("neatly ended", "fin_mid", INVALID, "invalid_response"),
    )
] + [
    Row(
        "ended after the finish reason",
        "An answer that said why it ended is whole; usage that never came is estimated",
        f"{TEXT}&{STREAM_ONLY}fault=fin_after_finish",
        Answered("estimated"),
    ),
    Row(
        "silent before a byte",
        "No first byte is a 504 at its deadline",
        "fault=hang",
        TIMEOUT,
        "timeout",
        provider=SHORT,
    ),
    Row(
        "silent after the headers",
        "No byte of the body is a 504 at the first byte's deadline",
        f"{TEXT}&fault=hang_headers",
        TIMEOUT,
        "timeout",
        provider=SHORT,
    ),
    Row(
        "silent past the first comment",
        "Once a keep-alive comment is out, a deadline is an error event; another provider may still answer",
        "fault=hang",
        Late("upstream_timeout"),
        "timeout",
        provider={"first_byte_timeout": 10.6},
        forms=("streamed",),
        within=16.0,
    ),
    Row(
        "silent amid the answer",
        "No further chunk is an error event at the deadline between chunks",
        f"{TEXT}&fault=hang_mid@4",
        Broken("upstream_timeout"),
        "timeout",
        whole=TIMEOUT,
        provider={"idle_timeout": 0.5},
    ),
    Row(
        "a byte now and then",
        "An answer that drips is cut at the total deadline",
        f"{TEXT}&fault=drip&every=150ms",
        TIMEOUT,
        "timeout",
        provider={"total_timeout": 0.8},
    ),
    Row(
        "a token now and then",
        "Output that drips is cut at the total deadline, and paid for",
        "tokens=200&pace=150ms&prompt=11",
        Broken("upstream_timeout"),
        "timeout",
        whole=TIMEOUT,
        provider={"total_timeout": 0.8},
    ),
]

UNREADABLE_ROWS = [
    Row(
        "garbage",
        "A body that nobody can read is a 502; what the provider takes for it is unknown",
        "fault=garbage",
        INVALID,
        "invalid_response",
    ),
    *(
        Row(
            f"{what} amid the answer",
            "A broken event ends the stream with an error event",
            f"{TEXT}&fault={fault}@4",
            Broken("upstream_invalid_response"),
            "invalid_response",
            whole=INVALID,
        )
        for what, fault in (("half an object", "half_json"), ("half a character", "half_utf8"))
    ),
    Row(
        "half an object before any text",
        "A broken event before any output is a failure like another",
        f"{TEXT}&fault=half_json@0",
        INVALID,
        "invalid_response",
    ),
    *(
        Row(
            f"framed with {framing}",
            "Every valid framing gives the same text, byte for byte",
            f"text={quote('naïve 文字 🙂 end')}&prompt=11&framing={framing}&{how}",
            Answered(text="naïve 文字 🙂 end"),
        )
        for framing, how in (
            ("crlf%2Bnospace%2Bmultiline%2Bcomments", "segment=1"),
            ("cr%2Bbom%2Bnamed%2Bping", "segment=7"),
            ("bom%2Bcomments%2Bping", ""),
        )
    ),
    *(
        Row(f"a 200 that says {said}", "An error inside a 200 is told with the status it means",
            f"fault=error_in_200&{words}", told, fault)
        for said, words, told, fault in (
            ("429", "status=429", _limited(1, 60), "rate_limited"),
            ("429 as text", "status=429&code=429", _limited(1, 60), "rate_limited"),
            ("502", "status=502", FAILED, "server_error"),
            ("529", "status=529", OVERLOADED, "overloaded"),
        )
    ),
    Row("no choices", "An answer without choices is a 502", "fault=empty_choices", INVALID, "invalid_response"),
    Row("no body", "A 200 without a body is a 502", "fault=empty_body", INVALID, "invalid_response"),
    Row("comments alone", "Comments and an end are no answer", f"{STREAM_ONLY}fault=comments_only", INVALID,
        "invalid_response"),
    Row("[DONE] alone", "[DONE] alone is no answer", f"{STREAM_ONLY}fault=done_only", INVALID, "invalid_response"),
    Row("an error as first event", "An error before any output is told with its status, never as a finished stream",
        f"{STREAM_ONLY}fault=error_first_event&status=529", OVERLOADED, "overloaded"),
    Row("an error amid the answer", "An error after output is an error event",
        f"{TEXT}&{STREAM_ONLY}fault=error_mid@4&status=529", Broken("upstream_overloaded"), "overloaded",
        whole=OVERLOADED),
]  # fmt: skip

STATUSES = [
    *(
        Row(
            f"a page of HTML as {status}",
            "A page of 50 KB from whatever stands before the provider is a 502, and none of it is shown",
            f"fault=html_502&status={status}",
            FAILED,
            "server_error",
        )
        for status in (502, 503)
    ),
    *(
        Row(
            f"429, Retry-After {value}",
            "A 429 keeps a sane Retry-After, at most 60 s, and its credential rests so long",
            f"status=429&retry_after={quote(value)}",
            _limited(*sane),
            "rate_limited",
            again=_limited(*again),
        )
        for value, sane, again in (
            ("7", (7, 7), (5, 7)),
            ("Fri, 31 Dec 2100 23:59:59 GMT", (60, 60), (57, 60)),
            ("soon", (15, 15), (12, 15)),
            ("1000000000", (60, 60), (57, 60)),
        )
    ),
    *(
        Row(
            f"429, {what}",
            "An account without credit is a 429, and its credential is not used again for a while",
            f"status=429&{words}",
            EXHAUSTED,
            "exhausted",
            again=EXHAUSTED,
        )
        for what, words in (
            ("no quota left", "code=insufficient_quota"),
            ("spend limit", "message=Your%20spend%20limit%20is%20reached."),
        )
    ),
    Row(
        "529",
        "An overloaded provider is a 503 with Retry-After",
        "status=529",
        OVERLOADED,
        "overloaded",
    ),
    Row(
        "503",
        "A provider out of capacity is a 503 with Retry-After",
        "status=503",
        OVERLOADED,
        "overloaded",
    ),
    *(
        Row(
            str(status),
            "The provider's refusal of our credential is a 502, never a 401; the credential is not used again",
            f"status={status}",
            AUTH,
            "auth",
            again=AUTH,
        )
        for status in (401, 403)
    ),
    Row(
        "400, too long",
        "A request that is too long for the model is the client's to change: 400 in the provider's words, no retry",
        "status=400",
        Refused(400, "context_length_exceeded", "invalid_request_error", moves=False,
                message="This model's maximum context length is 8192 tokens."),
        "rejected",
    ),
    Row(
        "400, filtered",
        "A filtered prompt is a 400, no retry",
        "status=400&code=content_filter&message=The%20prompt%20was%20filtered.",
        Refused(400, "content_filter", "invalid_request_error", moves=False, message="The prompt was filtered."),
        "rejected",
    ),
    *(
        Row(
            f"redirect, {status}",
            "A redirect is a 502; nobody follows it, and no credential goes there",
            f"status={status}&redirect={{canary}}",
            FAILED,
            "server_error",
        )
        for status in (301, 302, 307, 308)
    ),
]  # fmt: skip

SIZES = [
    Row("gzip cut short", "A compressed body that is cut short is a 502", f"{TEXT}&{WHOLE_ONLY}fault=gzip_truncated",
        INVALID, "invalid_response", memory=16),
    Row("a bomb of gzip", "A body that unpacks a thousandfold is a 502, before it is unpacked",
        "fault=gzip_bomb&size=1G", INVALID, "invalid_response", memory=16),
    Row("br", "A coding that was not asked for is a 502", "fault=br", INVALID, "invalid_response", memory=16),
    Row("words without end", "A stream that ignores its cap is cut soon after it; a budget with room pays what came",
        f"{STREAM_ONLY}fault=infinite&prompt=11", Broken("upstream_invalid_response"),
        "invalid_response", whole=INVALID, body={"max_tokens": 4}, hard=True, memory=64),
    Row("a body of 1 GB", "A body past 32 MiB is a 502, read no further", f"{WHOLE_ONLY}fault=big_body&size=1G",
        INVALID, "invalid_response", memory=64),
    Row("a line of 100 MB", "An event past 32 MiB is a 502, read no further", f"{STREAM_ONLY}fault=big_line&size=100M",
        INVALID, "invalid_response", memory=64),
    Row("100,000 headers", "Headers past 64 KiB are a 502", f"{TEXT}&fault=header_flood@100000", INVALID,
        "invalid_response", memory=64),
    Row("a header of 1 MB", "A header past its cap is a 502", f"{TEXT}&fault=big_header&size=1M", INVALID,
        "invalid_response", memory=64),
]  # fmt: skip

FRAMINGS = [
    Row("Content-Length too short", "A body cut by its own length is a 502, and its connection is not used again",
        f"{TEXT}&{WHOLE_ONLY}fault=bad_length@short", INVALID, "invalid_response"),
    Row("Content-Length too long", "A body that ends before its length is a 502",
        f"{TEXT}&{WHOLE_ONLY}fault=bad_length@long", TRUNCATED, "truncated"),
    Row("two framings", "Content-Length beside Transfer-Encoding is a 502", f"{TEXT}&{WHOLE_ONLY}fault=cl_and_te",
        INVALID, "invalid_response"),
    Row("1,000 interim answers", "A flood of 1xx is a 502", f"{TEXT}&fault=flood_1xx", INVALID, "invalid_response"),
    Row("no head", "A body without a head is a 502", "fault=http09", INVALID, "invalid_response"),
    Row("a head that is not HTTP", "What is not HTTP is a 502", "fault=bad_status_line", INVALID, "invalid_response"),
]  # fmt: skip

LIES = [
    Row(
        f"usage that is {lie}",
        "Counts that cannot be are not believed: estimated, marked and never negative",
        f"{TEXT}&wrong_usage={lie}",
        Answered("estimated", suspect=True),
    )
    for lie in ("negative", "float", "string", "bool", "nan", "infinite", "huge")
] + [
    Row(
        f"usage that is {lie}",
        "Usage that never came is estimated, and so is one whose total alone did",
        f"{TEXT}&wrong_usage={lie}",
        Answered("estimated"),
    )
    for lie in ("null", "missing", "partial")
] + [
    Row("usage that is empty", "Usage without counts is no usage", f"{TEXT}&wrong_usage=empty", Answered("estimated")),
    Row("usage twice", "The last of two usages stands", f"{TEXT}&wrong_usage=twice", Answered()),
    Row("usage that does not add up", "A total above its parts is hidden thinking: billed as completion, and marked",
        f"{TEXT}&wrong_usage=total", Answered(suspect=True)),
    Row("usage of other counts", "What the provider reports is what it bills", f"{TEXT}&wrong_usage=mismatch",
        Answered()),
]  # fmt: skip

ODD = [
    Row("another model's name", "Our own names stand in every answer", f"{TEXT}&model_echo=somebody-else", Answered()),
    Row("no id", "Our own id stands in every answer", f"{TEXT}&id=none", Answered()),
    Row("the same id twice", "Two answers with one id are two rows", f"{TEXT}&id=chatcmpl-always", Answered(),
        twice=True, dials=2),
    Row("a kept connection closed as we send", "Nobody sees it, it is billed once, and each send has its row",
        f"{TEXT}&fault=keepalive_race", Answered(), twice=True, dials=2),
    Row("calls out of order, unknown fields and events", "They pass unchanged", "{odd}", Answered(text=None)),
]  # fmt: skip

ROWS = [*UNREACHED, *BROKEN, *UNREADABLE_ROWS, *STATUSES, *SIZES, *FRAMINGS, *LIES, *ODD]
CELLS = [Cell(row, form, company) for row in ROWS for form, company in product(row.forms, ("alone", "with another"))]
