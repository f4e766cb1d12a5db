"""What an algorithm would have earned, from a log of what another one showed: `dpb.replay`.

`rounds` makes rounds of rows, `players` choose and learn as they would online, `tally` adds up what
estimates need, `release` puts noise on the one private number in it and says what that costs,
`estimates` are values with intervals, `replay` puts it together.
"""
