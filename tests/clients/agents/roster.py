"""The agents: what each is called, what it speaks, how it is told where the gateway is, and the tool it writes with."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.pairs.said import Call

FILE, TEXT = "hello.txt", "good day to you\n"
TASK = f"Write a file {FILE} that says: good day to you"
DONE = "The file is written."


class Place(NamedTuple):
    """Where an agent is started: the gateway's address, a key, a model's name, its home, the folder it works in."""

    url: str
    secret: str
    model: str
    home: Path
    folder: Path


@dataclass(frozen=True)
class Agent:
    """An agent.

    - `program`: of its package, below node_modules, for Node; with a `*`: the machine's own; empty: a Python package's
    - `speaks`: its protocol; `keeps_thoughts`: it sends back what a model thought, with its proof
    - `arguments`: of its command; `settings`: what it finds in its environment; `files`: in its home
    - `call`: how its own tool, one of those that are offered, writes the file; `says`: what it is told in the end
    """

    name: str
    program: str
    speaks: str
    arguments: Callable[[Place], list[str]]
    settings: Callable[[Place], Mapping[str, str]]
    call: Callable[[Place, frozenset[str]], Call | None]
    files: Callable[[Place], Mapping[str, str]] = lambda place: {}
    keeps_thoughts: bool = False
    says: str = DONE


def by_path(tool: str, path: str) -> Callable[[Place, frozenset[str]], Call | None]:
    """A tool that takes a file's path and its content."""

    def call(place: Place, offered: frozenset[str]) -> Call | None:
        return Call("call_a1", tool, {path: str(place.folder / FILE), "content": TEXT}) if tool in offered else None

    return call


def by_shell(place: Place, offered: frozenset[str]) -> Call | None:
    """Codex writes with a command; what its tool is called depends on what it knows of the model."""
    command = f"printf {shlex.quote(TEXT)} > {FILE}"
    shells: dict[str, dict[str, Any]] = {
        "exec_command": {"cmd": command},
        "shell_command": {"command": command},
        "shell": {"command": ["bash", "-c", command]},
    }
    return next((Call("call_a1", name, given) for name, given in shells.items() if name in offered), None)


def codex_toml(place: Place) -> str:
    """Codex's configuration."""
    return f"""
model = {json.dumps(place.model)}
model_provider = "meterline"
check_for_update_on_startup = false

[model_providers.meterline]
name = "Meterline"
base_url = "{place.url}/v1"
env_key = "METERLINE_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""


def opencode_json(place: Place) -> str:
    """opencode's configuration."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Meterline",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "{env:METERLINE_KEY}"},
        "models": {place.model: {"name": "A model"}},
    }
    kept = {"autoupdate": False, "share": "disabled", "permission": {"edit": "allow"}}
    return json.dumps({**kept, "provider": {"meterline": provider}, "model": f"meterline/{place.model}"})


def gemini_json(place: Place) -> str:
    """The settings of Gemini CLI; where a base URL is set it must be told that a key is meant."""
    quiet = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
    update = {"general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False}}
    return json.dumps(quiet | update | {"security": {"auth": {"selectedType": "gemini-api-key"}}})


def qwen_json(place: Place) -> str:
    """The settings of qwen-code."""
    quiet = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
    return json.dumps(quiet | {"general": {"disableAutoUpdate": True, "enableAutoUpdate": False}})


AGENTS = (
    Agent(
        name="claude-code",
        program="@anthropic-ai/claude-code/cli-wrapper.cjs",
        speaks="anthropic_messages",
        arguments=lambda place: ["-p", TASK, "--allowedTools", "Write"],
        settings=lambda place: {
            "ANTHROPIC_BASE_URL": place.url,
            "ANTHROPIC_AUTH_TOKEN": place.secret,
            "ANTHROPIC_MODEL": place.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": place.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        call=by_path("Write", "file_path"),
        keeps_thoughts=True,
    ),
    Agent(
        name="codex",
        program="@openai/codex/bin/codex.js",
        speaks="openai_responses",
        arguments=lambda place: [
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK),
        ],
        settings=lambda place: {"METERLINE_KEY": place.secret},
        call=by_shell,
        files=lambda place: {".codex/config.toml": codex_toml(place)},
        keeps_thoughts=True,
    ),
    Agent(
        name="gemini-cli",
        program="@google/gemini-cli/bundle/gemini.js",
        speaks="google_gemini",
        arguments=lambda place: ["--prompt", TASK, "--model", place.model, "--approval-mode", "yolo", "--skip-trust"],
        settings=lambda place: {
            "GOOGLE_GEMINI_BASE_URL": place.url,
            "GEMINI_API_KEY": place.secret,
            "GEMINI_TELEMETRY_ENABLED": "false",
        },
        call=by_path("write_file", "file_path"),
        files=lambda place: {".gemini/settings.json": gemini_json(place)},
        keeps_thoughts=True,
    ),
    Agent(
        name="qwen-code",
        program="@qwen-code/qwen-code/cli.js",
        speaks="openai_chat",
        arguments=lambda place: ["--prompt", TASK, "--auth-type", "openai", "--approval-mode", "yolo"],
        settings=lambda place: {
            "OPENAI_BASE_URL": f"{place.url}/v1",
            "OPENAI_API_KEY": place.secret,
            "OPENAI_MODEL": place.model,
        },
        call=by_path("write_file", "file_path"),
        files=lambda place: {".qwen/settings.json": qwen_json(place)},
    ),
    Agent(
        name="opencode",
        program="opencode-*/bin/opencode",
        speaks="openai_chat",
        arguments=lambda place: ["run", TASK],
        settings=lambda place: {"METERLINE_KEY": place.secret, "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        call=by_path("write", "filePath"),
        files=lambda place: {".config/opencode/opencode.json": opencode_json(place)},
    ),
    Agent(
        name="aider",
        program="",
        speaks="openai_chat",
        arguments=lambda place: [
            *("--message", TASK, "--model", f"openai/{place.model}", "--edit-format", "whole", "--yes-always"),
            *("--no-git", "--analytics-disable", "--no-check-update", "--no-show-release-notes"),
            *("--no-show-model-warnings", "--no-detect-urls", "--no-pretty"),
        ],
        settings=lambda place: {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": place.secret},
        call=lambda place, offered: None,  # It offers no tool: it takes files out of what is said.
        says=f"{FILE}\n```\n{TEXT}```\n",
    ),
)
