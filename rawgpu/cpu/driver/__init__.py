"""Driver of the CPU device. Read `device.py`, then `queue.py`."""
