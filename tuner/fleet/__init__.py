"""The fleet: campaigns, the workers that run them, and the queue between them."""
