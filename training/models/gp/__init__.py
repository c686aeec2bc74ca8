"""The Gaussian process over ordered pairs: fit and hyperparameters, posterior mean, export."""
