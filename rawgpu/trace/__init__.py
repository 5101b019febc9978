"""Recordings of what a driver and a kernel said to each other.

`record.py` writes one, as JSON lines; `replay.py` is a kernel port that answers from one; `show.py`
prints one through the declarations.
"""
