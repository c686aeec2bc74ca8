"""Posterior beliefs about the pairs of sparsely measured jobs: compared with the champion model, published with it."""
