"""The algorithms: one file each says what it is made of, what it claims and what its options are."""
