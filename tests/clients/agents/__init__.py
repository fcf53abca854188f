"""Coding agents that nobody here wrote, each of which writes a file through the gateway.

`roster` says what they are and how each is told where the gateway is, and `installed` gets them from the registries.
The model (`tests/clients/acting.py`) asks for the file to be written with the tool that the agent offers, and then says
that it is done, in the words of any protocol. `tasks` are the tests, one for each agent over a provider of each:

    python -m tests.clients.agents              all of it
    python -m tests.clients.agents -k codex     arguments are pytest's

Frameworks (`tests/clients/test_defaults.py`) follow. An agent runs here, with the rights of whoever starts it, in
folders of its own. It is told to send nothing home; what heeds a proxy finds none.
"""
