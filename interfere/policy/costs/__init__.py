"""What each possible placement would cost: objectives, cost tables of pairs, and the candidates of one decision."""
