"""Measures what the library promises: speed, cost of a launch and of a compilation, memory held.

`speed.py` times the operations of `operations.py` against others, and `training.py` steps of whole
networks; `launch.py` what one realize costs, `front_end.py` the way from Python to machine code,
`memory.py` what is held and what grows. `replay.py` turns a graph into a call that computes it into
the same memory again; read it first, then `row.py` and `speed.py`.
"""
