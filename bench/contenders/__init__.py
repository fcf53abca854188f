"""Who is measured. Each module has `start(site)`: a context in which its contender takes requests, or `Skipped`."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from bench.contenders import litellm, meterline, nginx, portkey
from bench.site import Running, Site

Start = Callable[[Site], AbstractContextManager[Running]]

# In the order they are measured and shown.
CONTENDERS: dict[str, Start] = {
    "meterline": meterline.start,
    "nginx": nginx.start,
    "litellm": litellm.start,
    "portkey": portkey.start,
    "portkey_newer_node": portkey.start_newer,
}
