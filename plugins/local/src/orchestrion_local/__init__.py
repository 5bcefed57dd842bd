"""Language models with local weights: sampled in batches, trained in place."""
