"""Generated from serving/proto by `make gen`; never edited by hand."""
