"""`python3 deploy/new_env.py .env`: fresh secrets for a deployment, as docker-compose.yml asks for them.

The file is its owner's alone, and one that is there already is left as it is. Without a name they are printed.

A plain script with the standard library alone, for a machine that has nothing but a container engine.
"""

import os
import sys
from base64 import urlsafe_b64encode
from secrets import token_bytes, token_hex, token_urlsafe


def new_secrets() -> dict[str, str]:
    """Every secret a deployment has, by the name of its variable; all fit into a URL as they are."""
    return {
        "SECRET_KEY": token_urlsafe(50),
        "KEY_PEPPERS": token_urlsafe(32),
        "SEALING_KEYS": urlsafe_b64encode(token_bytes(32)).decode(),
        "POSTGRES_PASSWORD": token_hex(24),
        "METERLINE_OWNER_PASSWORD": token_hex(24),
        "METERLINE_APP_PASSWORD": token_hex(24),
        "METERLINE_CONSOLE_PASSWORD": token_hex(24),
        "VALKEY_PASSWORD": token_hex(24),
        "METRICS_TOKEN": token_urlsafe(32),
    }


if __name__ == "__main__":
    lines = "".join(f"{name}={value}\n" for name, value in new_secrets().items())
    if len(sys.argv) > 1:
        with open(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(lines)
    else:
        print(lines, end="")
