"""What happens to a request, in order. This is the only file that knows it.

    who calls         `authentication`, before the body is read
    what is asked     the client's protocol: `parse`; files it names by id are looked up (`files`)
    which offers      `planning.prepare`: the models, the policy, `routing.plan` over one snapshot
    hold              `Generation`: money, tokens, a place, and the first attempt, durable before the dial
    dial              the first offer, the named files put in; the next one while nothing meaningful has been relayed
                      (`itinerary`)
    relay             every chunk as it comes, but for the last part
    settle            usage, ledger, counters, durable
    the last part     finish reason, usage and [DONE], or the whole JSON body

Streamed or not, it is one path: a generator of the bytes that go to the client. What it raises before its first part
becomes an HTTP error; afterwards a failure is an error event, without [DONE].
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import lru_cache

from gateway import signing, sse
from gateway.attempt import Attempt
from gateway.dialling import Dialling, Pace
from gateway.errors import GatewayError, UpstreamFault
from gateway.files import inline_files
from gateway.generation import Generation
from gateway.planning import Call
from gateway.process import Process
from gateway.protocols.openai_chat import AnswerReader, ChatRequest, error_event, upstream_body
from gateway.upstream import Dial, Reply
from routing.base_url import parse_base_url
from routing.faults import Fault

KEEP_ALIVE = sse.comment("keep-alive")
# An answer may be longer in bytes than its cap in tokens, but not without bound.
BYTES_A_TOKEN = 64
SPARE_BYTES = 65_536


async def relay(process: Process, call: Call) -> AsyncGenerator[bytes]:
    """Answers a call: parts of the stream, or the whole body as the only part."""
    async with Generation(process, call) as generation:
        try:
            while True:
                try:
                    async with aclosing(_answer(process, generation)) as parts:
                        async for part in parts:
                            generation.begun = True
                            yield part
                    break
                except UpstreamFault as fault:
                    if not await generation.may_go_on(fault):
                        raise
            last = await generation.complete()
        except GatewayError as error:
            await generation.fail(error)
            if not generation.begun:
                error.headers["x-generation-id"] = call.id
                raise
            yield error_event(error, call.dialect, call.request_id)
            return
        except asyncio.CancelledError:
            end_of_key = generation.was_cut()
            if end_of_key is None:
                raise
            await generation.fail(end_of_key)
            if not generation.begun:
                end_of_key.headers["x-generation-id"] = call.id
                raise end_of_key from None
            yield error_event(end_of_key, call.dialect, call.request_id)
            return
        yield last


async def _answer(process: Process, generation: Generation) -> AsyncGenerator[bytes]:
    """One dial: its parts as they come, and keep-alive comments while a streaming client waits."""
    attempt, policy = generation.attempt, generation.call.plan.policy
    pace = Pace(
        generation.deadline,
        attempt.candidate.offer.provider,
        first_byte=policy.first_byte_timeout,
        total=generation.seconds_left,
        beats=generation.call.asked.stream,
    )
    dial = _dialled(process, generation, attempt)
    async with Dialling(process, attempt, pace, dial, lambda: _reader(generation, attempt)) as dialling:
        while (reply := await dialling.reply()) is None:
            yield KEEP_ALIVE
        reader = attempt.reader
        assert reader is not None
        most_bytes = attempt.candidate.output_cap * generation.call.asked.n * BYTES_A_TOKEN + SPARE_BYTES
        waiting: list[bytes] = []  # nothing goes out before something meaningful is there
        while not reader.complete:
            data = await pace.wait(reply.read())
            if data is None:
                yield KEEP_ALIVE
                continue
            if not data:
                reader.end()
                break
            pace.heard()
            waiting += reader.feed(data)
            if reader.meaningful or not generation.call.asked.stream:
                if attempt.row.ttft_ms is None:
                    generation.first_event()
                if waiting:
                    attempt.relayed = True
                    yield b"".join(waiting)
                    waiting.clear()
                    pace.told()
            if reader.fault:  # it waited for the frames before it
                raise reader.fault
            if reader.relayed_bytes > most_bytes:
                raise UpstreamFault(Fault.INVALID_RESPONSE, "the answer is longer than its cap allows")
        if waiting:
            attempt.relayed = True
            yield b"".join(waiting)
        await reply.release()


def _reader(generation: Generation, attempt: Attempt) -> AnswerReader:
    call, candidate = generation.call, attempt.candidate
    return AnswerReader(
        call.asked,
        id=call.id,
        created=generation.created,
        model=call.asked.model if call.dialect.echoes_requested_model else candidate.model.slug,
        dialect=call.dialect,
        output_cap=generation.output_cap(candidate) or candidate.output_cap,
        stops=call.fit(candidate).enforced_stops,
        keeps_text=generation.continues,
        after=generation.said,
    )


async def _dialled(process: Process, generation: Generation, attempt: Attempt) -> Reply:
    asked = await inline_files(process, generation.caller, generation.call.asked)
    return await process.upstream.dial(_dial(generation, attempt, asked))


def _dial(generation: Generation, attempt: Attempt, asked: ChatRequest) -> Dial:
    candidate, offer, provider = attempt.candidate, attempt.candidate.offer, attempt.candidate.offer.provider
    body = upstream_body(
        asked,
        model=offer.upstream_model,
        output_cap=generation.output_cap(candidate),
        cap_field=provider.cap_field,
        ask_usage=provider.stream_usage,
        fit=generation.call.fit(candidate),
        prefill=generation.said.rstrip(),  # blanks at its end do not go: some refuse them
    )
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", "text/event-stream" if asked.stream else "application/json"),
        ("User-Agent", "meterline"),
    ]
    headers += signing.headers(provider.auth_style, attempt.credential.secret if attempt.credential else "")
    return Dial("POST", _base_url(provider.base_url), "/chat/completions", headers, body, provider.connect_timeout)


_base_url = lru_cache(maxsize=1024)(parse_base_url)
