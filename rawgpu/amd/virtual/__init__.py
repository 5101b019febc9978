"""A virtual AMD machine: the kernel driver's side of every request, and GPUs that run packets.

Read `kernel.py` for the requests, `memory.py` for page tables, `queues.py` and `cp.py` for the
engines, `dispatch.py` for what runs machine code.
"""
