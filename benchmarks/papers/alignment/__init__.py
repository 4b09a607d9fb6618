"""Tang: Linear kernel alignment (sketched CKA, layered ridge, pruning of ensembles)."""

PAPER = "Linear kernel alignment"
