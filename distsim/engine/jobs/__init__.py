"""From a job as stated to one in which nothing is open: presets, degrees, stages, what trains."""
