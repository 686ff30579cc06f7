"""What the commands do, each a short story; their signatures and docstrings are the flags and help of the command line.

Heavy libraries are imported inside the functions, so that `--help` answers at once.
"""
