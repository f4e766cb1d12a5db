"""`python -m dpbandit`: the command line, also where the script is not on the PATH."""

from dpbandit.cli import main

main()
