"""Changes that make a job fit or faster, each computed."""
