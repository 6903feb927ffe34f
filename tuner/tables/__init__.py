"""Tables: a device's bests as one document, to export and to read back."""
