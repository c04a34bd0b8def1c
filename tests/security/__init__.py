"""A tree with a policy: what each role can do, and nothing more."""
