"""The simulated provider: an OpenAI-compatible server that does what a model's name says and keeps a bill.

It serves the demo, the tests and the bench, shares no code with the product, calls no model and costs
nothing. The same request gets the same bytes, ids apart. What it bills is counted from what it said, on its
own, so its bill is the ground truth that money tests compare the gateway's books with.

    python -m tests.simulated --port 9100 --bill bill.jsonl

Served: POST /v1/chat/completions and /v1/completions (streamed or whole), POST /v1/embeddings, GET /v1/models and GET
/v1/models/NAME, and the control endpoints below. A prompt is as a message of a chat, and what a name does to a chat it
does to the others; a vector has 8 numbers, or as many as `dimensions` says. Any other POST path takes behaviours that
need no such request: `script` and the faults marked *. There the model's name is read from the body, or from the path
(`.../models/NAME:verb`, `/model/NAME/invoke`).

MODEL NAMES. `name` or `name?key=value&key&key=value`, as in a URL; values are percent-decoded. Any name is
served. A key nobody knows, or one that cannot apply, is a 400 `bad_option`: a typo never passes for good
behaviour. Times are `20ms`, `1.5s` or bare milliseconds; sizes `64K`, `2M`, `1G` (powers of 1024).

What is said
    tokens=16            tokens of the answer; a token is a word. The cap of the request (`max_tokens`,
                         `max_completion_tokens`) cuts it, and then `finish_reason` is `length`
    tokens=all           as many as it takes to the end of the last sentence
    text=...             say exactly this; its words are its tokens
    echo                 say the request's body exactly as received; no cap applies
    echo_headers         say the request's headers: a JSON list of [name, value], in order, as received
    tools=1              when the request offers tools (and `tool_choice` is not `none`), call this many
                         instead of talking. A call's name is a token, and so is each started 8 characters of
                         its arguments
    reasoning=5          think this many tokens first; they are inside `completion_tokens` and under the cap
    reasoning_field=     reasoning_content (default), reasoning, or hidden (billed and never shown)
    ignore_max           say everything, whatever the cap
    context=8192         refuse (400 `context_length_exceeded`) when the prompt and the request's cap are more tokens
    prompt=12            tokens of the prompt. By default: the words of every text part, and 4 a message
    cached=10            of the prompt, this many were read from a cache (at most all of it)
    id=LITERAL, id=none  the answer's id: this one every time, or none at all
    model_echo=NAME      the model the answer claims to come from
    instant              the cheapest answer, for the bench: fixed text of 16 tokens to a prompt of 8,
                         whatever was asked. Takes no other option; streamed it is an ordinary answer
    script=NAME          the recording NAME (see --recordings and /control/script), byte for byte
How it is said
    first=300ms          wait before the first byte
    pace=20ms            between two tokens: stream events lie this far apart; a whole answer takes as long in
                         silence
    hold, hold=K         wait for /control/release: before the first byte, or after K events
    usage_at=            chunk (default: its own event, only when `stream_options.include_usage` asks), always
                         (the same, unasked), finish (on the event with finish_reason), every (running totals
                         on each event)
    as=json, as=sse      answer in this form, whatever `stream` asks
    framing=             joined by `+`: crlf, cr, nospace (`data:{`), comments, ping (`data: : keepalive`),
                         multiline (JSON over many data lines), named (`event: message`), bom
    content_type=        another Content-Type; `none` for none
    segment=1, gap=5ms   write the whole answer, head and all, this many bytes at a time, this far apart
    close                `Connection: close`
    idle=500ms           close the connection this long after the answer
Usage that lies (the bill keeps the truth, and beside it what was reported)
    wrong_usage=         negative, float, string, bool, nan, infinite (1e999), huge (10^30), null, empty,
                         partial (`total_tokens` alone), mismatch (100 too many), total (parts and total
                         disagree), missing, twice (two usage events, the first half of the second; whole
                         answers repeat the key)
When it misbehaves
    fault=NAME, NAME@K   see below; K counts stream events (the first one carries the role)
    status=429           refuse with this HTTP status and an OpenAI error*
    code= message=       other words in that error, and in the errors inside a 200
    retry_after=7        a Retry-After header, as given
    redirect=URL         307 (or `status=`) with this Location*
    fail_first=2         only the first 2 requests to this exact model name fail
    fail_every=5         only every 5th request fails (the 5th, the 10th)
    flap=10s             fails for 10 s, works for 10 s, and so on, from the server's start
    every=1s  size=1M    the interval of `drip`; the size of big things

FAULTS. * needs no chat request; "stream", "whole": only there; `@K` as above. Where a fault breaks off a
whole answer, half of its body has been sent.

    reset_before *       the connection is reset once the request is read
    close_before *       ... is closed, without a byte
    reset_headers        reset after the head
    reset_mid@1          reset after K events
    cut_mid@1            closed after K events, inside the body: the framing shows that something is missing
    fin_mid@1            ended after K events, neatly framed but with neither finish_reason nor [DONE]
    fin_after_finish     stream: ended neatly after finish_reason, without usage and [DONE]
    hang *               never answers, and waits for the client to leave
    hang_headers         the head, then silence
    hang_mid@1           K events, then silence
    slow@3s              the first byte comes this late, the rest is right
    drip                 the head, then a byte each `every` (1 s)
    infinite             stream: words without end, whatever the cap
    garbage *            200 whose body is neither JSON nor text
    half_json@1          event K+1 is half a JSON object, the rest is right; whole: half a JSON object
    half_utf8@1          event K+1 ends inside a character, the rest is right; whole: the same in the body
    error_in_200 *       200 with `{"error": ...}` as JSON, also when a stream was asked
    error_first_event    stream: the first event is an error
    error_mid@1          stream: an error after K events
    empty_choices        `"choices": []` and no usage
    empty_body *         200 with no body
    done_only            stream: [DONE] and nothing else
    comments_only        stream: two comments and the end
    html_502 *           an HTML page of 50 KB, 502 (or `status=`), with SECRET-INTERNAL in it
    bad_length@short     whole: Content-Length is half the body; bad_length@long: 100 bytes more than is sent
    cl_and_te            whole: both Content-Length and Transfer-Encoding: chunked
    http09 *             a body and no head
    bad_status_line *    not HTTP
    flood_1xx            1,000 interim answers before the right one
    header_flood@100000  this many headers before the right body
    big_header           one header of `size` (1M)
    big_body             whole: JSON with `size` (64M) of padding around the right answer
    big_line             stream: after the first event one data line of `size` (2M), the rest is right
    gzip                 the right answer, `Content-Encoding: gzip`; a stream is flushed at each event
    gzip_truncated       whole: half of that, neatly framed
    gzip_bomb            gzip that unpacks to `size` (1G) of spaces
    br                   `Content-Encoding: br` over bytes that are not
    keepalive_race       answers right; the next request on the same connection is reset, unread and unbilled

THE BILL. JSON lines, appended, each with one write: a `start` line before any byte of the answer, an `end`
line when it is over. Both carry `id` (minted here, never repeated), `model`, `path`, `stream`, `attempt_id`
(header x-attempt-id), `request_id` (header x-request-id), `credential` (`digest`, 16 hex digits of SHA-256,
and `last4`; null without one), `connection` (its number) and `at` (seconds since 1970, UTC). The end line
adds `started`, `status` (null: no head was sent), `fault` (that which was played, or null), `prompt_tokens`,
`cached_tokens`, `completion_tokens`, `reasoning_tokens`, `usage` (as reported: the JSON text, null if none),
`events`, `bytes` (handed to the kernel, head included) and `ended`: complete (all of it was handed over),
client_closed, reset (by us), closed (by us, too early), aborted (by /control/reset or the server's end) or
failed (a mistake of this server; its standard error tells). The prompt is billed when the first byte of an
answer's body leaves; a streamed token when its event does, a whole answer's tokens all with its first byte.
Refusals and errors bill nothing.

CONTROL. GET /control/state (waiting, sockets, answering, peak, requests, ended), GET /control/bill
(lines since the last reset; `?after=1000` without the first thousand bytes), GET /control/asked/NAME
(the request that this recording was last played to), POST /control/release (`?n=2`: only the two that wait
longest), POST /control/script/NAME (the body is the recording; see scripts.py for what the query may say),
POST /control/model/NAME (the body is `key=value&...`: what NAME does from now on, under what a request's
own options add), POST /control/reset (aborts answers under way, closes idle connections, forgets counters,
recordings and behaviours; the bill's file stays). `--key` guards what is billed, and nothing else."""
