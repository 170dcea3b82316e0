"""The paper's tables and figures: its printed numbers, with our measurements beside them.

A table is a pure function of the printed numbers (``printed/*.toml``) and of a folder of records; a
figure is drawn from records or from a small run at a fixed seed. The command is
``python -m studies paper``.
"""
