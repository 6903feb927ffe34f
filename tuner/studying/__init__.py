"""What to try next: a belief over a finite list of candidates, and what is read off it."""
