"""`python -m tests.attacks.collected --port …`: the gateway, with its collector turned off and counted on request.

SIGUSR1 collects and turns the collector off. SIGUSR2 collects again and writes one JSON line to standard output: how
many objects only the collector could free, and their commonest types.
"""

import gc
import json
import signal
from collections import Counter
from typing import Any

from gateway.door.server import main


def begin(*_: Any) -> None:
    """From now on nothing is collected unasked."""
    gc.collect()
    gc.disable()
    print(json.dumps("begun"), flush=True)


def name(one: object) -> str:
    """What an object is, for a person."""
    if (frame := getattr(one, "tb_frame", one)) and hasattr(frame, "f_code"):
        return f"{type(one).__name__} {frame.f_code.co_qualname}"
    if hasattr(one, "__func__"):
        return str(one.__func__.__qualname__)
    if isinstance(one, dict):
        return "dict of " + ",".join(map(str, one))[:60]
    return f"{type(one).__qualname__}" + (f" {one.__qualname__}" if hasattr(one, "__qualname__") else "")


def tell(*_: Any) -> None:
    """Writes what has become garbage in circles since."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    kinds = Counter(f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.garbage)
    found = {"objects": len(gc.garbage), "kinds": kinds.most_common(40)}
    edges: Counter[str] = Counter()
    ids = {id(one) for one in gc.garbage}
    for one in gc.garbage:
        for other in gc.get_referents(one):
            if id(other) in ids:
                edges[f"{name(one)} -> {name(other)}"] += 1
    found["edges"] = edges.most_common(80)
    gc.garbage.clear()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, tell)
    main()
