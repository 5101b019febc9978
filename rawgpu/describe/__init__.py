"""Hardware and kernel interfaces described once, as data, for every reader of them.

Read `packet.py` first, then `register.py`, `request.py` and `generation.py`; all of them declare
values (`value.py`) made of fields (`field.py`), and `evidence.py` lists what pins each.
"""
