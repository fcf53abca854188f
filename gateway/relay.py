"""What happens to a request, in order. This is the only file that knows it.

    who calls         `authentication`, before the body is read
    what is asked     the client's protocol: `parse`; files it names by id are looked up (`files`)
    which offers      `planning.prepare`: the models, the policy, `routing.planning.plan` over one snapshot
    hold              `Generation`: money, tokens, a place, and the first attempt, durable before the dial
    dial              the first offer, the named files put in; the next one while nothing meaningful has been relayed
                      (`itinerary`)
    relay             every chunk as it comes, but for the last part
    settle            usage, ledger, counters, durable; and the answer, for who sent an Idempotency-Key (`keeping`)
    the last part     finish reason, usage and [DONE], or the whole JSON body

Streamed or not, it is one path: a generator of the bytes that go to the client. What it raises before its first part
becomes an HTTP error; afterwards a failure is an error event, without [DONE].
"""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from msgspec.structs import replace

from gateway.files.named import inline_files
from gateway.generation import reading
from gateway.generation.attempt import Attempt
from gateway.generation.dialling import Dialling, Pace, target
from gateway.generation.generation import Generation
from gateway.process.memory import NoRoom, Share
from gateway.process.process import Process
from gateway.protocols import CHAT, CLIENTS, upstream
from gateway.protocols.openai_chat import AnswerReader, Fit
from gateway.protocols.openai_embeddings.answer import VectorReader
from gateway.protocols.openai_embeddings.request import Embeddings
from gateway.protocols.sides import Answer, Asking, ClientSide, Ours, UpstreamSide, Writer
from gateway.request import sealed_ids
from gateway.request.planning import Call
from gateway.upstream.client import Dial
from gateway.upstream.reply import Reply
from gateway.upstream.veil import VeiledEvents, veil_over
from gateway.wire.errors import GatewayError, InvalidRequest, UpstreamFault, let_go, not_carried
from routing.base_url import versioned
from routing.catalog import SERVICE, Credential
from routing.health.faults import Fault
from routing.planning.plan import Candidate

# The text of an answer may be longer in bytes than its cap in tokens, but not without bound. Pictures are no text.
BYTES_A_TOKEN = 64
SPARE_BYTES = 65_536


async def relay(process: Process, call: Call) -> AsyncGenerator[bytes]:
    """Answers a call: parts of the stream, or the whole body as the only part."""
    keeping = call.keeping
    async with Generation(process, call) as generation:
        event = partial(_error_event, generation)
        try:
            while True:
                parts = _answer(process, generation)
                try:
                    async for part in parts:
                        generation.begun = True
                        if keeping is not None:
                            keeping.take(part)
                        yield part
                    break
                except UpstreamFault as fault:
                    if not await generation.may_go_on(fault):
                        raise
                finally:
                    await parts.aclose()
            last = await generation.complete()
        except GatewayError as error:
            error.told = error.told or (call.passes and isinstance(error, UpstreamFault))
            await generation.fail(error, event)
            if not generation.begun:
                error.headers["x-generation-id"] = call.id
                raise
            let_go(error)
            yield generation.failure or event(error)
            return
        except asyncio.CancelledError:
            reason = generation.was_cut()
            if reason is None:
                raise
            await generation.fail(reason, event)
            if not generation.begun:
                reason.headers["x-generation-id"] = call.id
                raise reason from None
            yield generation.failure or event(reason)
            return
        yield last


async def _answer(process: Process, generation: Generation) -> AsyncGenerator[bytes]:
    """One dial: its parts as they come, and keep-alive comments while a streaming client waits."""
    call, attempt = generation.call, generation.attempt
    candidate, policy = attempt.candidate, call.plan.policy
    side = upstream(candidate.offer.provider.protocol, call.asked)
    cap, fit = generation.output_cap(candidate, named=side.names_cap), call.fit(candidate)
    pace = Pace(
        generation.deadline,
        candidate.offer.provider,
        first_byte=policy.first_byte_timeout,
        total=generation.seconds_left,
        beats=call.asked.stream,
    )
    ours = _ours(generation, candidate)
    writer = _client(call).writer(call.asked, ours)
    reader = _reader(generation, candidate, cap, fit, ours, writer)
    asking = _asking(generation, attempt, cap, fit, ours)
    dial = _dial(process, generation, attempt, side, asking, reader)
    with Dialling(process, attempt, pace, dial, side, reader) as dialling:
        while (reply := await dialling.reply()) is None:
            yield writer.keep_alive
        most_bytes = candidate.output_cap * call.asked.n * BYTES_A_TOKEN + SPARE_BYTES
        came = 0  # bytes; a text has at most three times as many, of which each stood for one that is no UTF-8
        waiting: list[bytes] = []  # nothing goes out before something meaningful is there
        try:
            while not reader.complete:
                if reader.stopped and not generation.reads_on(pace):
                    if reader.abandoned is None:
                        reader.conclude()
                    break
                data = reply.take()
                if data is None and (data := await pace.wait(reply.coming())) is None:
                    yield writer.keep_alive
                    continue
                if data:
                    came += len(data)
                    if generation.drain is not None:
                        generation.drain.read(len(data))
                    if reading.is_small(reader, data):
                        waiting += reader.feed(data)
                    else:
                        waiting += await _read(reader, data, attempt.memory)
                    pace.heard(reader.begun)
                else:
                    await reading.end(reader)
                if reader.meaningful or not call.asked.stream:
                    if attempt.row.ttft_ms is None:
                        generation.first_event()
                    if waiting:
                        attempt.relayed = True
                        yield b"".join(waiting)
                        waiting.clear()
                        pace.told()
                if reader.fault:  # it waited for the frames before it
                    raise reader.fault
                if came * 3 > most_bytes and reader.relayed_bytes > most_bytes and reader.abandoned is None:
                    too_long = _too_long(most_bytes)
                    if reader.stopped or not reader.abandon(too_long):
                        raise too_long
        except UpstreamFault:
            if not reader.stopped:
                raise
            if reader.abandoned is None:
                reader.conclude()  # what was wanted of it is whole
        if reader.abandoned is not None:
            raise reader.abandoned
        if waiting:
            attempt.relayed = True
            yield b"".join(waiting)
        await reply.release()


async def _read(reader: Answer, data: bytes, memory: Share) -> list[bytes]:
    """The frames that `data` completes. Of an answer that there is no room for the rest is read for its usage alone."""
    try:
        return await reading.feed(reader, data, memory)
    except NoRoom as error:
        if not reader.abandon(error):
            raise
        memory.free()
        return await reading.feed(reader, data, memory)


def _too_long(most_bytes: int) -> UpstreamFault:
    rule = f"{BYTES_A_TOKEN} for each token that it may have and {SPARE_BYTES} more"
    message = f"The provider's answer is longer than {most_bytes} bytes: {rule}."
    return UpstreamFault(Fault.INVALID_RESPONSE, "the answer is longer than its cap allows", message=message)


def _error_event(generation: Generation, error: GatewayError) -> bytes:
    call, reader = generation.call, generation.attempt.reader
    if call.asked.spoken is not None:
        call.asked.spoken.retell(error)
    if reader is not None:
        return reader.error_event(error, call.request_id)
    ours = _ours(generation, generation.attempt.candidate)
    return _client(call).writer(call.asked, ours).error_event(error, call.dialect, call.request_id)


def _client(call: Call) -> ClientSide:
    spoken = call.asked.spoken
    return CLIENTS[CHAT if spoken is None else spoken.protocol]


def _ours(generation: Generation, candidate: Candidate) -> Ours:
    call = generation.call
    model = call.asked.model if call.dialect.echoes_requested_model else candidate.model.slug
    return Ours(call.id, generation.created, model)


def _reader(
    generation: Generation, candidate: Candidate, cap: int | None, fit: Fit, ours: Ours, writer: Writer
) -> Answer:
    asked, dialect = generation.call.asked, generation.call.dialect
    most_bytes = candidate.offer.provider.max_event_bytes
    if asked.spoken is not None and isinstance(asked.spoken.form, Embeddings):
        return VectorReader(
            asked.spoken.form,
            model=ours.model,
            dialect=dialect,
            most_bytes=most_bytes,
            wants_cost=asked.wants_cost,
        )
    return AnswerReader(
        asked,
        id=ours.id,
        created=ours.created,
        model=ours.model,
        dialect=dialect,
        output_cap=cap or candidate.output_cap,
        stops=fit.enforced_stops,
        most_bytes=most_bytes,
        keeps_text=generation.continues,
        after=generation.said,
        writer=writer,
    )


def _asking(generation: Generation, attempt: Attempt, cap: int | None, fit: Fit, ours: Ours) -> Asking:
    call, candidate = generation.call, attempt.candidate
    offer, provider = candidate.offer, candidate.offer.provider
    return Asking(
        model=offer.upstream_model,
        output_cap=cap,
        fit=fit,
        prefill=generation.said.rstrip(),  # blanks at its end do not go: some refuse them
        takes=call.takes(candidate),
        cap_field=provider.cap_field,
        ask_usage=provider.stream_usage,
        variant=provider.variant,
        ours=ours,
        sealed=partial(_sealed, call, candidate, attempt.credential),  # and nothing that holds the reader
    )


def _sealed(call: Call, candidate: Candidate, credential: Credential | None, id: str) -> str:
    """What the client is told in place of the `id` of an answer that the provider keeps."""
    offer = candidate.offer
    account = offer.provider.slug if credential is None else credential.id.hex
    tokens = call.input_tokens + candidate.output_cap
    if offer.context_length:
        tokens = min(tokens, offer.context_length)  # nobody reads more
    return sealed_ids.seal(call.caller.organization, account, tokens, id)


async def _dial(
    process: Process, generation: Generation, attempt: Attempt, side: UpstreamSide, asking: Asking, reader: Answer
) -> Reply:
    asked, provider = generation.call.asked, attempt.candidate.offer.provider
    share: Share | None = None
    try:
        if asked.file_ids:
            share = Share(generation.caller.organization, generation.caller.key)  # until they have been sent
            asked = await inline_files(process.files, generation.caller, asked, share.take)
        try:
            sent = await asyncio.to_thread(side.sent, asked, asking) if asked.is_long else side.sent(asked, asking)
            generation.call.sent_as(sent)
            if (service := generation.call.plan.wanted.service) and SERVICE not in (
                *asking.fit.withheld,
                *sent.ignored,
            ):
                attempt.service = service
        except InvalidRequest as refusal:
            raise not_carried(refusal) from None
        accept = sent.stream_type if asked.stream else "application/json"
        path = versioned(sent.path, provider.api_version)
        to = target(provider.base_url, provider.connect_timeout, accept, path, sent.headers)
        secret = attempt.credential.secret if attempt.credential else ""
        signed = await process.signer.sign(provider.auth_style, secret, provider.region, to, sent.body)
        attempt.hidden = hidden = signed.hidden
        if sent.events is not None and (veil := veil_over(hidden)):
            # Frames are no text: nothing of them goes on but the events in them, nor can a part of one wait for the
            # next.
            sent, hidden = replace(sent, events=VeiledEvents(sent.events, veil)), ()
        reader.understand(sent)
        reply = await process.upstream.dial(Dial(to, signed.headers, sent.body, hidden, attempt.fresh))
        attempt.row.connect_ms = round(reply.opened_in * 1000)
        if reply.status == 401:
            process.signer.refused(provider.auth_style, secret, signed)
        return reply
    finally:
        if share is not None:
            share.free()
