"""What picks an arm: one short file per algorithm, and the registry that names them."""
