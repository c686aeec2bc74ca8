"""What a site's monitoring already knows: which jobs shared a device, how fast each ran, and what that taught.

One pure core (`reading`) turns samples into windows of constant company with the steps that each job made in them. The
watcher reports these windows to a server; the audit estimates from them what sharing cost.
"""
