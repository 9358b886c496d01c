"""Clusters of machines that are reached by SSH."""
