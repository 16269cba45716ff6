"""What is known of whole runs before one is planned: their pace, their usual batch, and what machines rent for."""
