"""Who shares with whom at the least cost: pure functions over cost arrays, with a bound beside every answer."""
