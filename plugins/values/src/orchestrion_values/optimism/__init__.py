"""What the trainer `optimistic` is made of."""
