"""Running jobs: which of them stay, migrate, are preempted or end."""
