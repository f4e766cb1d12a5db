"""How well `dpb.plan` predicts: simulations of the default grid beside its predictions."""
