"""What ranks send each other in a step, kind by kind."""
