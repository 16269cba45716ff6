"""From a step's computation and exchanges to its time, and how sure that is."""
