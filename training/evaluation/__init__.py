"""How good models are: splits, scores, cross-validation, leaderboards, the champion/challenger gate, and drift."""
