"""Measured runs, whose cells and notes ``interop/runs`` reads: the jobs that they were, and how alike two are."""
