"""From this protocol to the chat form and back: what was meant is what is sent."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.openai_chat import parse
from gateway.protocols.openai_chat.request.foreign_clients import NO_RESULT
from gateway.protocols.openai_responses.client_request import chat_form
from gateway.protocols.openai_responses.upstream_request import body
from tests.protocols.openai_responses.answers import CASES, chunks_of, drawn, recorded, recorded_whole, shown, written

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ids = st.text("abcXYZ019_-.:", min_size=1, max_size=64)
names = st.from_regex(r"\A[a-zA-Z0-9_-]{1,64}\Z")


def message(role: str, *types: str) -> st.SearchStrategy[dict[str, Any]]:
    part = st.builds(lambda kind, text: {"type": kind, "text": text}, st.sampled_from(types), words)
    content = st.lists(part, min_size=1, max_size=3)
    return st.builds(lambda content: {"type": "message", "role": role, "content": content}, content)


def image(url: str) -> dict[str, Any]:
    content = [{"type": "input_image", "image_url": url, "detail": "auto"}]
    return {"type": "message", "role": "user", "content": content}


def thought(id: str, summaries: list[str], sealed: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in summaries]
    return {"type": "reasoning", "summary": summary, "id": f"rs_{id}", "encrypted_content": sealed}


def called(kind: str, id: str, name: str, given: str) -> list[dict[str, Any]]:
    """A call with its result."""
    field = "arguments" if kind == "function_call" else "input"
    call = {"type": kind, "call_id": id, "name": name, field: given}
    return [call, {"type": f"{kind}_output", "call_id": id, "output": given}]


kinds = st.sampled_from(("function_call", "custom_tool_call"))
thoughts = st.builds(thought, ids, st.lists(words, max_size=3), st.from_regex(r"\A[A-Za-z0-9+/_=-]{1,30}\Z"))
# A thought stands before what came of it; alone it would be the beginning of a turn that says nothing.
turns = st.one_of(
    st.builds(lambda *items: list(items), message("user", "input_text")),
    st.builds(lambda *items: list(items), message("developer", "input_text")),
    st.builds(lambda *items: list(items), st.just(image("https://x.example/a.png"))),
    st.builds(lambda t, m: [t, m], thoughts, message("assistant", "output_text")),
    st.builds(lambda t, call: [t, *call], thoughts, st.builds(called, kinds, ids, names, words)),
)
schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(names, st.just({}), max_size=2)}
)
tools = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("function"), "name": names, "parameters": schemas, "strict": st.booleans()},
        optional={"description": words},
    ),
    st.fixed_dictionaries(
        {"type": st.just("custom"), "name": names},
        optional={
            "format": st.fixed_dictionaries(
                {"type": st.just("grammar"), "syntax": st.just("lark"), "definition": words}
            )
        },
    ),
)
bodies = st.fixed_dictionaries(
    {
        "model": st.just("m-1"),
        "input": st.lists(turns, min_size=1, max_size=6).map(lambda turns: [item for turn in turns for item in turn]),
    },
    optional={
        "temperature": st.sampled_from((0, 0.5, 2)),
        "max_output_tokens": st.integers(16, 10**6),
        "tools": st.lists(tools, min_size=1, max_size=3, unique_by=lambda tool: tool["name"]),
        "text": st.fixed_dictionaries(
            {
                "format": st.fixed_dictionaries({"type": st.just("json_schema"), "name": names, "schema": schemas}),
                "verbosity": st.sampled_from(("low", "high")),
            }
        ),
        "reasoning": st.fixed_dictionaries({"effort": st.sampled_from(("low", "high"))}),
        "parallel_tool_calls": st.booleans(),
        "metadata": st.dictionaries(names, st.just("v"), max_size=2),
    },
)


@given(bodies)
def test_a_body_comes_back_as_it_was(asked: dict[str, Any]) -> None:
    form = chat_form(asked)
    assert (form.only_native, form.ignored) == ((), ())
    request = parse(form.body, 9999)
    made = body(
        {**request.body, **request.changes},
        model="m-1",
        output_cap=request.output_cap,
        stream=False,
        reasons=False,
    )
    assert made.pop("stream") is False
    assert made.pop("store") is False
    assert made == asked


def test_what_an_answer_said_is_what_the_next_request_says() -> None:
    """An answer of one provider, read by an SDK, sent back in the next turn: its items are those it gave."""
    for case in CASES:
        output = drawn(written(shown(chunks_of([recorded(case)])))).output
        items = [item.model_dump(exclude_none=True, mode="json") for item in output]
        if any(item["type"] == "image_generation_call" for item in items):
            continue  # which only its own provider takes back
        form = chat_form({"model": "m-1", "input": [{"role": "user", "content": "hi"}, *items]})
        request = parse(form.body, 9999)
        chat = {**request.body, **request.changes}
        sent = body(chat, model="up-1", output_cap=None, stream=False, reasons=True)["input"][1:]
        left = {"status", "annotations", "logprobs"}
        expected = [_plain(item, left) for item in recorded_whole(case)["output"] if item["type"] != "web_search_call"]
        calls = [item["call_id"] for item in sent if item["type"].endswith("_call")]  # nobody has answered them
        none = [item.pop("call_id") for item in sent if item.get("output") == NO_RESULT]
        assert [_plain(item, left) for item in sent[: len(sent) - len(none)]] == expected
        assert none == calls


def _plain(item: dict[str, Any], left: set[str]) -> dict[str, Any]:
    """An item without what is not sent back; its id only where it is bound to what is encrypted."""
    gone = left if item["type"] == "reasoning" else {*left, "id"}
    made = {name: value for name, value in item.items() if name not in gone}
    if type(made.get("content")) is list:
        made["content"] = [{k: v for k, v in part.items() if k not in left} for part in made["content"]]
    return made
