"""Statistics of censored, clustered values: percentiles, intervals, rates. Deterministic."""
