"""The paper's tables and figures again: its printed numbers beside what our records hold.

A table is a pure function of the printed numbers (``printed/*.toml``) and of a folder of records; a
figure is drawn from records or from a small run at a fixed seed. ``musigma paper`` is the command.
"""
