"""Seconds of computation: what each operation of the ledger takes on a chip."""
