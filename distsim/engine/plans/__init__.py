"""Whole runs: clusters, days, failures, energy and money."""
