"""What an answer used that nobody counted, estimated fairly: its text by the bytes a token of its model stands for, its
media by the model's bounds for a hold. What the provider did say of it is the least.
"""

from billing.tokens import Tokens, estimate
from gateway.generation.plausible import plausible
from gateway.process.tokenizers import Tokenizers
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request.text import said_bytes
from gateway.protocols.sides import Answer
from gateway.request.planning import Call
from routing.catalog import Model
from routing.planning.plan import Candidate


class Estimate:
    """The estimates of one call's attempts. The text of its prompt is measured when the first one is asked for."""

    __slots__ = ("_call", "_said", "_tokenizers")

    def __init__(self, call: Call, tokenizers: Tokenizers) -> None:
        self._call = call
        self._tokenizers = tokenizers
        self._said: int | None = None

    def doubt(self, candidate: Candidate, reader: Answer | None) -> None:
        """Counts that cannot be are none: what is billed is an estimate, and they are kept to be judged."""
        usage = None if reader is None else reader.usage
        if reader is not None and usage is not None and not plausible(usage, self._call, candidate, reader):
            reader.disbelieve()

    def of(self, candidate: Candidate, reader: Answer | None) -> Tokens:
        """The prompt, and what was written of the answer, shown or not; of a whole body that was not read to its end,
        what came of that.
        """
        asked, model = self._call.asked, candidate.model
        if self._said is None:
            self._said = said_bytes(asked.body)
        bytes_a_token = self._tokenizers.bytes_a_token(model.slug)
        prompt = prompt_tokens(asked, model, bytes_a_token, self._said)
        if asked.spoken is not None and asked.spoken.kept is not None:  # its bound is a token a byte
            prompt += estimate(asked.spoken.kept.tokens, bytes_a_token)
        written = 0 if reader is None else estimate(reader.relayed_bytes, bytes_a_token)
        if reader is not None and reader.unread_body:  # pictures may be in it, so it is at most what it may have
            unread = estimate(reader.unread_body, bytes_a_token)
            written = max(written, min(candidate.output_cap * asked.n, unread))
        told = reader.usage if reader is not None else None
        if told is None:
            return Tokens(prompt, written)
        # Counts that came before the end: the prompt's are right, the answer's are of its beginning.
        return told.replaced(prompt=told.prompt or prompt, completion=max(written, told.completion))


def prompt_tokens(asked: ChatRequest, model: Model, bytes_a_token: float, said: int | None = None) -> int:
    """The tokens of a prompt, its text of `said` bytes, which are measured if they are not given."""
    return (
        estimate(said_bytes(asked.body) if said is None else said, bytes_a_token)
        + asked.tokens
        + asked.images * model.image_token_bound
        + asked.audios * model.audio_token_bound
        + max(asked.files * model.file_token_bound, estimate(asked.file_bytes, bytes_a_token))
    )


def learn_text(tokenizers: Tokenizers, candidate: Candidate, reader: Answer | None) -> None:
    """Notes what a token of a model's text stood for in an answer, if the provider counted it."""
    if reader is None or reader.abandoned or not reader.counted or (usage := reader.usage) is None:
        return
    written = usage.completion - usage.audio_output - usage.image_output
    if usage.reasoning and not reader.reasoning_bytes:
        written -= usage.reasoning  # thoughts that were not shown are no text of ours
    tokenizers.learn(candidate.model.slug, reader.relayed_bytes, written)
