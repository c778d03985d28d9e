"""Attacks, one module each: from what a view holds to scores, to be held against the truth."""
