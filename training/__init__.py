"""Fits, scores, exports, tracks and publishes the models that predict slowdowns."""
