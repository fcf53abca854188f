"""The legacy OpenAI completions protocol, without I/O: a text is gone on with, or a gap in it filled.

Editors use it. It is spoken to providers that have it, and translated to no other.
"""
