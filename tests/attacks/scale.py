"""How large the attacks are: a fraction in `make test`, where they must be quick, and all of it in `make attacks`."""

import os

WHOLE = os.environ.get("ATTACKS") == "whole"
