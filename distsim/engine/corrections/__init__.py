"""What measured runs say about a job: how similar they are to it, and by how much they correct its time."""
