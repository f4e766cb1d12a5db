"""Broken mechanisms by subject; `planted.py` has the table of them all."""
