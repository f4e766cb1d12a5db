"""What releases are turned into: each learner in plain NumPy, the specification of the compiled
core.
"""
