"""The papers' own algorithms, written out literally with their equation numbers.

Estimators never import this package. Tests hold the fast code to it, and `benchmarks/papers` uses it.
"""
