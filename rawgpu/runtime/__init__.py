"""Finds and opens devices. Read `discover.py`, then `device.py`."""
