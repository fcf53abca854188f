"""How servers say that a prompt is too long for a model: one table, since a fallback with more room depends on it."""

import re

# Parts of an error's `code`, `type` or `status`.
_WORDS = (
    *("context_length", "context_window", "exceed_context_size", "max_context", "prompt_too_long", "input_too_long"),
    *("token_limit_exceeded", "tokens_limit_reached", "contextlengthexceeded", "contextwindowexceeded"),
)
# Prose, without what it quotes. Whoever is seen to say so stands behind it; many speak like another one.
_PROSE = (
    r"maximum context length",  # OpenAI, Azure, vLLM, DeepSeek, OpenRouter, Mistral
    r"exceeds? (?:the|this) (?:model's )?(?:maximum |available )?context",  # llama.cpp
    r"exceed(?:s|ed)? (?:the )?(?:maximum |max )?context (?:length|limit|size|window)",  # Ollama, Anthropic, llama.cpp
    r"context (?:size|length|window) (?:has been |is |was )?exceed",  # llama.cpp, LM Studio, MiniMax
    r"(?:longer|greater|larger) than the (?:model's )?(?:maximum )?(?:model|context|sequence) length",  # SGLang
    r"context length of only",  # LM Studio
    r"(?:configured|available) context size",  # llama.cpp
    r"(?:prompt|input|request|conversation) (?:is |was )?too long",  # Anthropic, Bedrock, Fireworks, Ollama
    r"too long to fit into the model",  # vLLM
    r"maximum prompt length",  # xAI
    r"reduce the length of the (?:messages|prompt|input)",  # Groq, Cerebras, NVIDIA
    r"input token count",  # Gemini, Vertex
    r"exceeds the maximum (?:number of |allowed )?(?:input )?(?:tokens|length|sequence length)",  # SGLang, Vertex
    r"(?:prompt|input)(?: length)? (?:\(\d+ tokens\) )?exceeds (?:the )?(?:max|limit|length limit)",  # Zhipu, SGLang
    r"exceeded model token limit",  # Moonshot
    r"range of input length should be",  # DashScope (Qwen)
    r"must have less than \d+ tokens|\btokens \+ +must be <= ?\d+",  # TGI, Together
    r"too many (?:input |prompt )?tokens(?! ?,? ?(?:please )?(?:wait|per))",  # Bedrock, Cohere; else a rate limit
    r"total number of tokens in the prompt cannot exceed",  # Cohere
    r"max(?:imum)? size: ?\d+ tokens",  # GitHub
)
_TOO_LONG = re.compile("|".join(_PROSE), re.IGNORECASE)
# One of them rejects it before it reads it, with no more than these statuses; one fails over it.
STATUSES = frozenset({None, 400, 413, 422, 500})


def is_overflow(status: int | None, words: str, prose: str) -> bool:
    """Whether an error of this HTTP status (None: not known) says that the prompt does not fit the model.

    `words`: its code and type in lower case; `prose`: its message without what it quotes.
    """
    if status not in STATUSES:
        return False
    return any(word in words for word in _WORDS) or _TOO_LONG.search(prose) is not None
