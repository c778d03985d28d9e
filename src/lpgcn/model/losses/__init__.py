"""Losses: from the scores of positives and negatives to slopes and a loss, one module each.

`bpr` compares every positive with a negative of its own, `softmax` with a pool of negatives that
many users share. What they say about a node is a `gradient.LossGradient` either way; the
regulariser is apart from both, in `propagation`.
"""
