"""The LiteLLM proxy, with a master key and nothing else: no database, no spend records, no limits."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.install import python_package
from bench.site import Running, Site, status_of, until_answers
from deploy.processes import free_port

VERSION = "1.108.7"
MASTER_KEY = "sk-bench"


@contextmanager
def start(site: Site) -> Iterator[Running]:
    """One worker. Its price list is the one in its package, so that it dials nobody at its start."""
    installed = python_package("litellm", f"litellm[proxy]=={VERSION}")
    folder, port = site.folder("litellm-home"), free_port()
    names = {model: f"bench-{number}" for number, model in enumerate(site.models)}
    configuration = {
        "model_list": [
            {
                "model_name": name,
                "litellm_params": {
                    "model": f"openai/{model}",
                    "api_base": f"{site.provider}/v1",
                    "api_key": "sk-provider",
                },
            }
            for model, name in names.items()
        ],
        "general_settings": {"master_key": MASTER_KEY},
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(configuration))  # JSON is YAML
    arguments: list[str | Path] = [
        installed / "bin" / "litellm",
        "--config",
        file,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "HOME": str(folder)}
    with site.contender("litellm", arguments, quiet, folder) as child:
        until_answers(child, lambda: status_of(port, "/health/liveliness") == 200)
        yield Running(
            port=port,
            pid=child.pid,
            on="a master key; no database, no limits, no spend records",
            version=VERSION,
            headers={"Authorization": f"Bearer {MASTER_KEY}"},
            models=names,
        )
