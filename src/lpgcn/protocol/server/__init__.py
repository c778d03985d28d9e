"""The server: it knows tokens, lists and ciphertexts, and sends every row where it is needed."""
