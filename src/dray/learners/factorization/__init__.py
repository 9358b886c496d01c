"""Recommenders by matrix factorization: explicit ratings and implicit feedback."""
