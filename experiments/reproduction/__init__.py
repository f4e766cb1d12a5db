"""The paper's experiments, run again and judged: what each figure claims, what was measured, and
whether it holds.
"""
