"""The dashboard: a web server on this host that shows what a policy server does now. It makes read calls alone."""
