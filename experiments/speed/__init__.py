"""How fast: our bandits beside other libraries', on the same contexts in the same run (`dpbandit
bench speed`).
"""
