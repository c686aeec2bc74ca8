"""Running jobs: which of them stay, migrate, stop or end."""
