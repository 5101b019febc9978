"""The `rawgpu` command: `main.py` has the table of commands, each of which is a module.

Read `main.py`, then `devices.py` as the smallest command. `doctor.py` prints what `facts.py`
gathers; `show.py` has tables and progress bars for every command.
"""
