"""`python -m dpbandit.cli`."""

from dpbandit.cli import main

main()
