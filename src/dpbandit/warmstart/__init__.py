"""Reading a log of contexts and rewards, of any size, into a bandit: `dpb.warm_start`.

`source` finds the files and cuts them into parts, `rows` turns a batch into arrays and says which rows are bad, `scan` adds
parts up (on threads, or on any other machinery that can map a function over parts), `start` puts it together.
"""
