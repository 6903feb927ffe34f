"""The queue: which open round is next. Derived from the tables of `tuner.evidence`, and rebuilt from them when lost."""
