"""The design of a campaign: which groups it measures, and on which core and at which priority each job runs."""
