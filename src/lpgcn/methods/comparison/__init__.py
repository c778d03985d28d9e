"""Several methods on one split, with one sampler, one ranking, one rule to stop."""
