"""What each party can find out: views of an adversary, attacks on them, and the audit."""
