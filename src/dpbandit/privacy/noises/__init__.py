"""One file for each noise; `privacy.noise` has them by name."""
