"""Many at the same money, key, price or row at the same moment, over four processes: what is promised, and by how much.

python -m tests.contention              all of it, and a table of figures
python -m tests.contention -k budget    arguments are pytest's
"""
