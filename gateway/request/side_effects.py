"""Fields of chat requests, across vendors' dialects of the protocol, that do more than shape an answer: as data.

Who can send one through the gateway has a vendor work, bill or remember beyond what was held and planned. So an offer
gets such a field only if its list of parameters has it. Names are compared without letter case, dashes and
underscores: `serviceTier`, `Service-Tier` and `service_tier` are one.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from gateway.protocols.openai_chat.request.overrides import folded

# Billed beside the tokens of one answer, or lifting the cap that was held.
_COSTS = (
    # searches, tools and other things that a vendor runs on its side
    *("plugins", "enable_search", "live_search", "grounding", "google_search", "google_search_retrieval", "browsing"),
    *("return_images", "return_videos", "return_related_questions", "num_search_results", "media_response"),
    *("enable_code_interpreter", "code_interpreter", "code_execution", "computer_use", "server_tools", "builtin_tools"),
    *("max_tool_calls", "compound_custom", "citation_options", "documents", "rag", "retrieval", "knowledge_base"),
    *("image_config", "image_generation", "vl_high_resolution_images", "speech", "voice", "safety_model"),
    # another class of service
    *("service_tier", "serving_tier", "tier", "speed", "fast_mode", "priority", "performance_config", "inference_geo"),
    # more answers than one
    *("best_of", "num_generations", "num_completions", "num_return_sequences", "candidate_count", "num_candidates"),
    *("use_beam_search", "beam_width", "num_beams", "ensemble", "reference_models"),
    # other names of the cap
    *("max_output_tokens", "max_new_tokens", "max_tokens_to_sample", "max_completion_length", "max_length"),
    *("max_gen_len", "max_gen_toks", "max_tokens", "max_completion_tokens", "max_total_tokens", "num_predict"),
    *("n_predict", "num_ctx"),
    # a cache that is paid for by the hour
    *("cached_content", "cache_ttl", "context_cache", "caching"),
)
# Sending the prompt to another model, deployment or machine than was planned and priced.
_REDIRECTS = (
    *("models", "route", "preset", "transforms", "middle_out", "fallback", "fallbacks", "fallback_models", "router"),
    *("context_window_fallbacks", "content_policy_fallbacks", "context_window_fallback_dict", "model_list"),
    *("engine", "deployment", "agent", "agent_id", "bot_id", "prompt_id", "app_id", "workspace", "guardrails"),
    *("draft_model", "adapter", "adapter_id", "adapter_source", "lora", "lora_path", "lora_request", "lora_adapter"),
    *("data_parallel_rank", "bootstrap_host", "bootstrap_port", "bootstrap_room", "kv_transfer_params"),
    *("disaggregated_params", "mock_response", "num_retries"),
    # whatever is inside: the vendors that take these put any field there
    *("extra_body", "extra", "extra_params", "additional_params", "additional_model_request_fields", "model_kwargs"),
    *("provider_options", "provider_params", "litellm_params", "generation_config", "inference_config", "options"),
    *("parameters", "google", "anthropic", "bedrock"),
)
# Kept at the vendor, or read from what was kept there: its account is shared by all tenants.
_KEEPS = (
    *("store", "previous_response_id", "previous_message_id", "parent_message_id", "response_id", "memory"),
    *("memory_id", "chat_id", "run_id", "vector_store_ids", "file_ids", "attachments", "container", "container_id"),
    *("tool_resources", "keep_alive", "ttl", "context_id", "auto_save_history", "use_threads", "prompt_cache_id"),
    *("slot_id", "id_slot", "user_context", "user_memory", "file_workspace_id", "distillation"),
)
# Going on after the answer, or calling somebody out there.
_CALLS_OUT = (
    *("background", "async", "deferred", "batch", "notify_url", "notification_url", "output_url", "upload_url"),
    *("success_callback", "failure_callback", "mcp", "mcp_servers", "connectors", "data_sources", "data_source"),
    *("enhancements", "tool_server", "tool_server_url", "remote_tools", "actions", "logging", "observability"),
    # code of the caller's that some servers run
    *("chat_template", "custom_logit_processor", "logits_processors"),
)
_KNOWN = frozenset(map(folded, (*_COSTS, *_REDIRECTS, *_KEEPS, *_CALLS_OUT)))
_KEEPING, _KEEPING_STARTS = frozenset(map(folded, _KEEPS)), ("conversation", "session", "thread")
_KNOWN_STARTS = ("search", "websearch", "webhook", "callback", "conversation", "session", "assistant", "thread")

# Nobody's of the protocol, but known to shape the words of one answer and no more.
_HARMLESS = frozenset(
    map(
        folded,
        (
            *("top_k", "top_a", "min_p", "typical_p", "tfs_z", "top_n_sigma", "epsilon_cutoff", "eta_cutoff"),
            *("repetition_penalty", "repeat_penalty", "repeat_last_n", "no_repeat_ngram_size", "length_penalty"),
            *("mirostat", "mirostat_tau", "mirostat_eta", "mirostat_mode", "dynatemp_range", "dynatemp_exponent"),
            *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_sequence_breakers", "xtc_probability"),
            *("xtc_threshold", "smoothing_factor", "random_seed", "do_sample", "min_tokens", "ignore_eos"),
            *("stop_token_ids", "bad_words", "include_stop_str_in_output", "skip_special_tokens"),
            *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
            *("json_schema", "grammar", "regex", "ebnf", "structural_tag", "safe_prompt", "safety_settings"),
            *("truncation", "context_management"),  # of what is said; the counts tell
            *("add_generation_prompt", "continue_final_message", "parse_tool_calls", "parallel_tool_choice"),
        ),
    )
)


@lru_cache(maxsize=4096)
def forgetting(parameters: tuple[str, ...]) -> tuple[str, ...]:
    """A list of parameters without those that have something kept: a policy may refuse that, whatever is listed."""
    return tuple(name for name in parameters if not _keeps(folded(name)))


def side_effects(unknown: Iterable[str], body: Mapping[str, Any], supported: frozenset[str]) -> list[str]:
    """The fields nobody checked that do more than shape the answer, and are not `supported`, in the body's order.

    A value that asks for nothing, such as false, "" or [], counts as none: it may switch off what a vendor does by
    itself.
    """
    return [name for name in unknown if name not in supported and _does_more(name, body[name])]


def strange(unknown: Iterable[str], supported: frozenset[str]) -> list[str]:
    """The fields nobody knows to be harmless, and that are not `supported`."""
    return [name for name in unknown if name not in supported and folded(name) not in _HARMLESS]


def _keeps(plain: str) -> bool:
    return plain in _KEEPING or plain.startswith(_KEEPING_STARTS)


def _does_more(name: str, value: Any) -> bool:
    plain = folded(name)
    if plain not in _KNOWN and not plain.startswith(_KNOWN_STARTS):
        return False
    return bool(value) or type(value) is int
