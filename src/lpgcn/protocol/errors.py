"""What can be wrong with a message. Errors name it, and such a message changes nothing."""

from __future__ import annotations

from lpgcn.errors import LpgcnError


class ProtocolError(LpgcnError):
    """A message that this party does not accept."""


class MalformedMessageError(ProtocolError):
    """Truncated, with trailing bytes, or with a field of the wrong length."""


class OversizedMessageError(ProtocolError):
    """Longer than any message that is expected here; it was not even parsed."""


class UnknownVersionError(ProtocolError):
    """Of a version of the protocol that this program does not speak."""


class WrongRunError(ProtocolError):
    """Of another run."""


class WrongPartyError(ProtocolError):
    """Addressed to, or sent by, another client than the one expected."""


class ReplayedMessageError(ProtocolError):
    """Of a step, phase or layer that is over."""


class UnexpectedMessageError(ProtocolError):
    """Of a kind or phase that does not come next."""


class TooFewMembersError(ProtocolError):
    """A term of fewer members than a party wants to be one of."""


class ChangedDataError(ProtocolError):
    """A client that comes back to a run with other interactions or features."""


class SuiteError(ProtocolError):
    """A table of keys that no client could keep to."""
