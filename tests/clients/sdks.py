"""The vendors' own SDKs, with base URL and key set and nothing else, called alike: a conversation with one tool.

Each is imported where it is used: it takes seconds, which a process that only collects tests need not spend.
"""

from typing import Any, NamedTuple, Protocol

ASKED = "weather in Oslo and Rome?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Told(NamedTuple):
    """An answer: its text, the calls with their arguments, tokens in and out."""

    text: str
    calls: list[tuple[str, Any]]
    usage: tuple[int, int]


class Sdk(Protocol):
    """A conversation."""

    def __init__(self, url: str, secret: str, model: str) -> None: ...

    def ask(self, *, stream: bool) -> Told:
        """What the model says now; it becomes a part of the conversation, as the SDK keeps it."""

    def give(self, result: str) -> None:
        """The result of every call of the last answer."""


class OpenAI:
    """OpenAI's, by Responses."""

    def __init__(self, url: str, secret: str, model: str) -> None:
        import openai

        self._client = openai.OpenAI(base_url=f"{url}/v1", api_key=secret, max_retries=0)
        tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
        self._asked: Any = {"model": model, "tools": [tool], "input": [{"role": "user", "content": ASKED}]}
        self._calls: list[Any] = []

    def ask(self, *, stream: bool) -> Told:
        if stream:
            with self._client.responses.stream(**self._asked) as told:
                assert [event.type for event in told][-1] == "response.completed"
            answer: Any = told.get_final_response()
        else:
            answer = self._client.responses.create(**self._asked)
        self._asked["input"] += answer.output
        self._calls = [item for item in answer.output if item.type == "function_call"]
        calls = [(call.name, call.arguments) for call in self._calls]
        return Told(answer.output_text, calls, (answer.usage.input_tokens, answer.usage.output_tokens))

    def give(self, result: str) -> None:
        output = {"type": "function_call_output", "output": result}
        self._asked["input"] += [output | {"call_id": call.call_id} for call in self._calls]


class Anthropic:
    """Anthropic's."""

    def __init__(self, url: str, secret: str, model: str) -> None:
        import anthropic

        self._client = anthropic.Anthropic(base_url=url, api_key=secret, max_retries=0)
        self._asked: Any = {"model": model, "max_tokens": 1000, "tools": [{"name": "weather", "input_schema": SCHEMA}]}
        self._asked["messages"] = [{"role": "user", "content": ASKED}]
        self._calls: list[Any] = []

    def ask(self, *, stream: bool) -> Told:
        if stream:
            with self._client.messages.stream(**self._asked) as told:
                answer: Any = told.get_final_message()
        else:
            answer = self._client.messages.create(**self._asked)
        self._asked["messages"].append({"role": "assistant", "content": answer.content})
        self._calls = [block for block in answer.content if block.type == "tool_use"]
        text = "".join(block.text for block in answer.content if block.type == "text")
        usage = answer.usage.input_tokens, answer.usage.output_tokens
        return Told(text, [(call.name, call.input) for call in self._calls], usage)

    def give(self, result: str) -> None:
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": result} for call in self._calls]
        self._asked["messages"].append({"role": "user", "content": results})


class Google:
    """Google's."""

    def __init__(self, url: str, secret: str, model: str) -> None:
        from google import genai
        from google.genai import types

        self._client = genai.Client(api_key=secret, http_options=types.HttpOptions(base_url=url))
        declared = types.FunctionDeclaration(name="weather", parameters_json_schema=SCHEMA)
        config = types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=[declared])],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        self._contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=ASKED)])]
        self._asked: Any = {"model": model, "contents": self._contents, "config": config}
        self._calls: list[Any] = []

    def ask(self, *, stream: bool) -> Told:
        if stream:
            answers = list(self._client.models.generate_content_stream(**self._asked))
        else:
            answers = [self._client.models.generate_content(**self._asked)]
        contents: list[Any] = [candidate.content for answer in answers for candidate in answer.candidates or ()]
        self._contents += contents
        parts = [part for content in contents for part in content.parts or ()]
        self._calls = [part.function_call for part in parts if part.function_call]
        usage: Any = answers[-1].usage_metadata
        text = "".join(part.text for part in parts if part.text and not part.thought)
        calls = [(call.name, call.args) for call in self._calls]
        return Told(text, calls, (usage.prompt_token_count, usage.candidates_token_count))

    def give(self, result: str) -> None:
        from google.genai import types

        parts = [
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": result})
            )
            for call in self._calls
        ]
        self._contents.append(types.Content(role="user", parts=parts))


SDKS: dict[str, type[Sdk]] = {"openai": OpenAI, "anthropic": Anthropic, "google": Google}
