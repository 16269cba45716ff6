"""What measured runs say of a job: how alike the two are, and what its time is corrected by."""
