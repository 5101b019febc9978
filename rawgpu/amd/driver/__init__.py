"""Raw driver of AMD GPUs. Read `device.py`, then `queue.py`."""
