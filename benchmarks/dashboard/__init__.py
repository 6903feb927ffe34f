"""The pages in a real browser: how soon they are there, how they move, how much they weigh; and their pictures."""
