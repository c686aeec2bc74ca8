"""The field over ordered pairs: rows explained by Gaussian terms, and the smoothing of recent windows with it."""
