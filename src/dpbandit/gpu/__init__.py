"""Simulations and audits on a GPU. One file of kernels (`kernels.cu`), compiled by CuPy there and
by g++ in tests.

It needs NumPy and CuPy alone, because GPU machines often allow no installs; only `translation`,
which turns our bandits into plans, needs the rest of the library. `python -m dpbandit.gpu` works
where nothing else is installed. Everything here simulates: its noise must never protect anyone.
"""
