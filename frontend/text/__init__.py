"""Level 5: instructions as each target's text.

Read `llvm.py` first, which has what every target shares; `cpu.py` and `amdgpu.py` have what a
kernel's beginning and its place in the grid look like there. `frontend/target.py` chooses.
"""
