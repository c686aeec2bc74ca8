"""Plans over time: every pending job gets a place now or later, by list scheduling on profiles of free devices."""
