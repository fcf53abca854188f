"""What a client, the books and the provider see of every fault a provider can have.

`rows` says what is promised, `stage` plays one cell of it through real sockets, `upstreams` are the providers that no
HTTP server would be, `table` prints how it went. A cell is a row, streamed or whole, alone or with another provider:

    python -m tests.faults                  all of it
    python -m tests.faults -k redirect      arguments are pytest's
"""
