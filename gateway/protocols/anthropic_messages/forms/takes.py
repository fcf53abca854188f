"""What a model behind this protocol takes, as its offer's row says it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Takes:
    """- `adaptive`: `thinking` of the type adaptive with an effort; else of the type enabled with a budget
    - `formats`: `output_config.format` and strict tools; else a structured answer is a tool's input
    - `urls`: pictures and documents by their address; else in base64 alone
    """

    adaptive: bool = False
    formats: bool = True
    urls: bool = True


PLAIN = Takes()
