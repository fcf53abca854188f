"""What happens to a request, in order. This is the only file that knows it.

    who calls         `authentication`, before the body is read
    what is asked     the client's protocol: `parse`; files it names by id are put in (`files`)
    which offers      `planning.prepare`: the models, the policy, `routing.plan` over one snapshot
    hold              `Generation`: money, tokens, a place, and the first attempt, durable before the dial
    dial              the first offer; the next one while nothing meaningful has been relayed
    relay             every chunk as it comes, but for the last part
    settle            usage, ledger, counters, durable
    the last part     finish reason, usage and [DONE], or the whole JSON body

Streamed or not, it is one path: a generator of the bytes that go to the client. What it raises before its first part
becomes an HTTP error; afterwards a failure is an error event, without [DONE].
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import lru_cache

from gateway import signing, sse
from gateway.egress import parse_base_url
from gateway.errors import Fault, GatewayError, UpstreamFault
from gateway.generation import Generation
from gateway.planning import Call
from gateway.process import Process
from gateway.protocols.openai_chat import (
    AnswerReader,
    error_event,
    fault_from_response,
    upstream_body,
)
from gateway.upstream import Dial, Reply
from routing.plan import Candidate

KEEP_ALIVE_SECONDS = 10.0
KEEP_ALIVE = sse.comment("keep-alive")
MOST_ERROR_BYTES = 64 * 1024
# An answer may be longer in bytes than its cap in tokens, but not without bound.
BYTES_A_TOKEN = 64


async def relay(process: Process, call: Call) -> AsyncGenerator[bytes]:
    """Answers a call: parts of the stream, or the whole body as the only part."""
    async with Generation(process, call) as generation:
        try:
            for candidate in call.offers:
                try:
                    async with aclosing(_attempt(process, generation, candidate)) as parts:
                        async for part in parts:
                            generation.begun = True
                            yield part
                    break
                except UpstreamFault as fault:
                    if not await generation.may_go_on(fault):
                        raise
            await generation.complete()
        except GatewayError as error:
            await generation.fail(error)
            if not generation.begun:
                error.headers["x-generation-id"] = call.id.hex
                raise
            yield error_event(error, call.dialect, call.request_id)
            return
        except asyncio.CancelledError:
            end_of_key = generation.was_cut()
            if end_of_key is None:
                raise
            await generation.fail(end_of_key)
            if not generation.begun:
                end_of_key.headers["x-generation-id"] = call.id.hex
                raise end_of_key from None
            yield error_event(end_of_key, call.dialect, call.request_id)
            return
        assert generation.reader is not None
        yield generation.reader.final()


async def _attempt(process: Process, generation: Generation, candidate: Candidate) -> AsyncGenerator[bytes]:
    """One dial: its parts as they come, and keep-alive comments while a streaming client waits."""
    call, provider, deadline = generation.call, candidate.offer.provider, generation.deadline
    streaming = call.asked.stream
    call.dialled = candidate
    clock = asyncio.get_running_loop().time
    started = clock()
    cut_off, due = started + provider.total_timeout, started + provider.first_byte_timeout
    beat = started + KEEP_ALIVE_SECONDS if streaming else cut_off
    reply: Reply | None = None
    # A task, so that a streaming client can be kept waiting alive meanwhile; the other one just waits.
    dialling = process.upstream.dial(_dial(generation, candidate))
    task = asyncio.get_running_loop().create_task(dialling) if streaming else None
    try:
        while task is not None and not task.done():
            await asyncio.wait({task}, timeout=min(beat, due) - clock())
            if not task.done():
                if clock() >= due:
                    raise UpstreamFault(Fault.TIMEOUT, "no first byte in time")
                yield KEEP_ALIVE
                beat = clock() + KEEP_ALIVE_SECONDS
        reply = task.result() if task is not None else await deadline.wait(dialling, min(due, cut_off))
        if not 200 <= reply.status < 300:
            body = await deadline.wait(_error_body(reply), due)
            raise fault_from_response(reply.status, reply.headers, body)
        shown = call.asked.model if call.dialect.echoes_requested_model else candidate.model.slug
        reader = generation.reader = AnswerReader(
            call.asked,
            id=call.id.hex,
            created=int(time.time()),
            model=shown,
            dialect=call.dialect,
            output_cap=candidate.output_cap,
            stops=call.fit(candidate).enforced_stops,
        )
        most_bytes = candidate.output_cap * call.asked.n * BYTES_A_TOKEN + 65_536
        waiting: list[bytes] = []  # nothing goes out before something meaningful is there
        while not reader.complete:
            try:
                data = await deadline.wait(reply.read(), min(beat, due, cut_off))
            except TimeoutError:
                if clock() >= min(due, cut_off):
                    raise UpstreamFault(Fault.TIMEOUT, "no further byte in time") from None
                yield KEEP_ALIVE
                beat = clock() + KEEP_ALIVE_SECONDS
                continue
            if not data:
                reader.end()
                break
            now = clock()
            due = now + provider.idle_timeout
            waiting += reader.feed(data)
            if reader.meaningful:
                generation.first_event()
                if waiting:
                    generation.relayed = True
                    yield b"".join(waiting)
                    waiting.clear()
                    beat = clock() + KEEP_ALIVE_SECONDS
            if reader.fault:  # it waited for the frames before it
                raise reader.fault
            if reader.relayed_bytes > most_bytes:
                raise UpstreamFault(Fault.INVALID_RESPONSE, "the answer is longer than its cap allows")
            if now >= cut_off:
                raise UpstreamFault(Fault.TIMEOUT, "the answer took too long")
        if waiting:
            generation.relayed = True
            yield b"".join(waiting)
        await reply.release()
    except TimeoutError as error:
        raise UpstreamFault(Fault.TIMEOUT, "no answer in time") from error
    finally:
        if task is not None:
            if not task.done():
                task.cancel()
            elif reply is None and not task.cancelled() and task.exception() is None:
                reply = task.result()
        if reply is not None:
            reply.abort()  # does nothing once it is released


def _dial(generation: Generation, candidate: Candidate) -> Dial:
    offer, provider = candidate.offer, candidate.offer.provider
    asked = generation.call.asked
    body = upstream_body(
        asked,
        model=offer.upstream_model,
        output_cap=generation.output_cap(candidate),
        cap_field=provider.cap_field,
        ask_usage=provider.stream_usage,
        fit=generation.call.fit(candidate),
    )
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", "text/event-stream" if asked.stream else "application/json"),
        ("User-Agent", "meterline"),
    ]
    credential = candidate.credential
    headers += signing.headers(provider.auth_style, credential.secret if credential else "")
    return Dial("POST", _base_url(provider.base_url), "/chat/completions", headers, body, provider.connect_timeout)


async def _error_body(reply: Reply) -> bytes:
    """The body of an error answer; an unreadable or endless one is as good as none."""
    try:
        return await reply.read_all(MOST_ERROR_BYTES)
    except UpstreamFault:
        return b""


_base_url = lru_cache(maxsize=1024)(parse_base_url)
