"""A client: one user, only its own interactions, and the items that the server made it own."""
