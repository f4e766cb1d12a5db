"""Simulations and audits on a GPU. One file of kernels (`kernels.cu`), compiled by CuPy there and
by g++ in tests.

It needs NumPy and CuPy alone, because GPU machines often allow no installs: `python -m dpbandit.gpu`
works where nothing else is installed, and no core is built. Everything here simulates: its noise
must never protect anyone.
"""
