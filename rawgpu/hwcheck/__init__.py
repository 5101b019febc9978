"""`rawgpu hwcheck`: the staged self-test for a card that this software has never met.

Read `plan.py` for the stages, `check.py` for what a stage has, `runner.py` for how each is run in a
process of its own. `probe.py` says what a vendor adds; its rooms are found by name.
"""
