"""The API server: calls, watched collections, the lease, and changes carried out."""
