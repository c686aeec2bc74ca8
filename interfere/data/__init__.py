"""Tables at rest: one schema, validated on read and write, with a card and a manifest."""
