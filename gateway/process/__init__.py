"""What one gateway process keeps between requests: the snapshot, what it learnt and shares, what it counts."""
