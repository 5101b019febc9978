"""Measures what the library promises: speed of operations, cost of a launch, memory held.

`speed.py` times the operations of `rows.py` against PyTorch, `launch.py` what one realize costs,
`memory.py` what is held and what grows. `replay.py` turns a graph into a call that computes it into
the same memory again; read it first, then `speed.py`.
"""
