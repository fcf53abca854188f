"""Keys of accounts at clouds, made here: nobody has ever opened anything with them."""

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
AWS_ID, AWS_SECRET = "AKIAMETERLINE0000042", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYmeterline0"
AWS_TOKEN = "IQoJb3JpZ2luX2VjEPT//////////wEaCXVzLWVhc3QtMSJHMEUCIQD" + "Ab3/+9z" * 40 + "=="


def pem(key: Any) -> str:
    """A private key as Google writes it."""
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.decode()


def document(**more: Any) -> str:
    """A service account's key, as Google hands it out but for `more`."""
    fields = {
        "type": "service_account",
        "project_id": "project",
        "client_email": "meter@project.iam.gserviceaccount.com",
        "private_key": pem(RSA),
        "private_key_id": "k1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return json.dumps(fields | more, indent=2)
