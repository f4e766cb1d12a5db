"""Attacks on our own claims: exact joint cost (`verify`) and hypothesis tests (`audit`).

Everything here runs on the trusted side with made-up rewards; nothing in it is needed to use a
bandit.
"""
