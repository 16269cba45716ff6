"""Bytes on one GPU: states, buffers, saved tensors, and the moments at which they peak."""
