"""Gap filling executed: a job of low priority runs its operators while a job of high priority has none ready."""
