"""Pipelines over time: schedules checked, simulated, and layers split over their stages."""
