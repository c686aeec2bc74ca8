"""What must outlive the server: profiles, observations, decisions; one protocol, one conformance suite."""
