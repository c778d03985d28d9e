"""The root of every error that lpgcn raises on purpose.

Every message says what was found, what was expected and what to do. The command line prints it
without a traceback and exits with status 2.
"""


class LpgcnError(Exception):
    """Something that the caller can mend: input, configuration, a folder, a message of a peer."""
