"""From calls to scores, and from two sets of scores to what changed."""
