"""What a collective costs on a group of ranks and the links that join them."""
