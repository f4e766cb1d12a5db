"""Reading a log of contexts and rewards, of any size, into a bandit: `dpb.warm_start`.

`source` finds the files and cuts them into parts, `rows` turns a batch into arrays and says which
rows are bad, `scan` adds up a part, `caps` minds users' caps, `total` spreads parts over threads or
a cluster and merges their sums, `start` puts it together.
"""
