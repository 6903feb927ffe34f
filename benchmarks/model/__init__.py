"""Transformer blocks with torch's own products and with an installed table's, end to end."""
