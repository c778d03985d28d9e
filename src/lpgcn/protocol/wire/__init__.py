"""Messages as they travel: their kinds, their fields, and the sizes of both."""
