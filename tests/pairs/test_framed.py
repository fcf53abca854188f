"""Every client's protocol over Messages as Bedrock sells it: each scene says in frames what it says in a stream."""

import json
import secrets
from dataclasses import replace
from itertools import product

import pytest

from tests.pairs.clients import CLIENTS
from tests.pairs.play import Play
from tests.pairs.providers import anthropic_messages as speaks
from tests.pairs.test_pairs import FORMS, SCENES, WHOLE, told_finish
from tests.stage.accounts import AWS_ID, AWS_SECRET
from tests.stage.product import synchronize
from tests.stage.shelf import make_model, make_provider
from tests.wire.frames import framed


def says(play: Play, data: bytes, *, stream: bool) -> None:
    """From now on a new model is asked, which Bedrock sells."""
    play.name = f"framed-{secrets.token_hex(6)}"
    kind = "application/vnd.amazon.eventstream" if stream else "application/json"
    said = b"".join(framed(data)) if stream else data
    play.simulated.behave(play.name, play.simulated.script(play.name, said, content_type=kind, chunk=333))
    row = make_provider(
        play.simulated.url,
        f"{AWS_ID}:{AWS_SECRET}",
        protocol="anthropic_messages",
        variant="invoke",
        auth_style="sigv4",
        region="us-east-1",
    )
    play.model = make_model(row, play.name).slug
    synchronize(play.gateway)


@pytest.mark.parametrize(
    ("case", "client", "stream"),
    [
        pytest.param(case, client, stream, id=f"{client}-{form}-{case}")
        for (i, case), (j, client), (stream, form) in product(enumerate(SCENES), enumerate(CLIENTS), FORMS)
        if WHOLE or (i + j) % 4 == 2 * stream  # in `make test` each case streamed and whole, for clients by turns
    ],
)
def test_scene(play: Play, client: str, stream: bool, case: str) -> None:
    question, said = SCENES[case]
    says(play, speaks.stream(said) if stream else speaks.whole(said), stream=stream)
    heard = play.hears(client, question, stream).said
    assert heard == replace(said, proof="", finish=told_finish(said, client, "anthropic_messages"))
    asked = play.simulated.asked(play.name)
    verb = "invoke-with-response-stream" if stream else "invoke"
    assert asked["path"] == f"/model/{play.name}/{verb}"
    assert speaks.got(json.loads(asked["body"])).turns == (("user", question.text),)
    row, counts = play.usage, said.counts
    assert (row.status, row.basis) == ("completed", "reported")
    assert (row.prompt_tokens, row.completion_tokens) == (counts.prompt, counts.completion)
    assert (row.cached_tokens, row.reasoning_tokens) == (counts.cached, counts.thought)
