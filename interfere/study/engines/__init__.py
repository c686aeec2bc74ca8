"""The engines that run tasks, and how they are named."""
