"""Finds and opens devices. Read `discover.py`, then `device.py`.

`rooms.py` makes rooms of virtual GPUs, `bench_launch.py` measures what a launch costs.
"""
