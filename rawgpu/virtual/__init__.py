"""The kit that virtual GPUs of every vendor are made of.

Read `room.py` first: a room holds virtual machines, chosen by `RAWGPU_VIRTUAL` or in code.
`memory.py` has memory that CPU and GPUs see differently, `schedule.py` all chance, `clock.py` all
time, `faults.py` what tests make go wrong.
"""
