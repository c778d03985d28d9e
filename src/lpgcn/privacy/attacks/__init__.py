"""Attacks, one module each: from what a view holds to scores, which the audit holds against truth."""
