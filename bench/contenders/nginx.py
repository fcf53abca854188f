"""nginx as a reverse proxy: the least that a hop can cost. Used where it is installed, never installed by us."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.site import Running, Site, Skipped, status_of, until_answers
from deploy.processes import free_port

# `keepalive_requests`: by default each connection is closed after 1,000 requests, on either side.
CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000000;
    upstream provider {{
        server 127.0.0.1:{provider};
        keepalive 512;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


@contextmanager
def start(site: Site) -> Iterator[Running]:
    """One worker, connections kept on both sides, no buffering."""
    # Where Debian puts it is not on every user's path.
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise Skipped("nginx is not installed")
    folder, port = site.folder("nginx"), free_port()
    file = folder / "nginx.conf"
    file.write_text(CONFIGURATION.format(folder=folder, port=port, provider=site.simulated.port))
    told = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr
    arguments: list[str | Path] = [program, "-p", folder, "-c", file, "-e", folder / "error.log"]
    with site.contender("nginx", arguments, {}, folder) as child:
        until_answers(child, lambda: status_of(port, "/v1/models") == 200)
        yield Running(
            port=port,
            pid=child.pid,
            on="nothing but proxying",
            version=told.strip().rpartition("/")[2],
        )
