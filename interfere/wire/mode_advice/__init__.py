"""Questions about the sharing mode of a device, and their answers on the wire."""
