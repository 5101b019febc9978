"""The only door out of the process, and the kernel ABIs behind it, declared once.

Read `port.py` first: the protocol that a real kernel (`host.py`), a virtual one and a recorder keep
alike. `kfd.py` and `amdgpu.py` are what AMD's kernel drivers understand, `drm.py` what every
graphics driver does; `memory.py` reads and writes what a
request points to.
"""
