"""Tables: the bests of a device as one document, to take away and to read back."""
