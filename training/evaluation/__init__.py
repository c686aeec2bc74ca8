"""How good models are: splits, scores, cross-validation, the gate between champion and challenger, drift."""
