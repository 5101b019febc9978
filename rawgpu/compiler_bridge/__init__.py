"""Text to machine code: LLVM in worker processes, a cache, an IR builder, elementary functions.

Read `llvm.py` for the entry points, `workers.py` for how the processes are kept, `text.py` for
building LLVM IR, `maths.py` for exp, log, sin and their kin. `target_names.py` is data.
"""
