"""What privacy costs, who is told about it, and who draws the noise. Facts only: no sums, no
arms."""
